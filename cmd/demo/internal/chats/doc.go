// Package chats plays chats with a real model through a scheduler, as many clients at
// once, and keeps what was answered, so that two runs can be compared token by token.
//
// The chats are about people whose facts are in a system prompt. Groups of chats share
// a system prompt, so their prompts begin alike, and each turn of a chat begins with the
// turns before. The built-in model was trained on such chats: the right answers are
// known.
package chats
