// Package token turns text into tokens and back, with the vocabulary that comes
// with a model: that of a GGUF file, or a tokenizer.json.
//
// Two families are read. Byte-level BPE splits text into words by a pattern and
// merges the bytes of a word by rank. SentencePiece's BPE writes spaces as ▁,
// merges the characters of the whole text, by score or by rank, and falls back to
// bytes. What is neither, or has steps that are not known here, is refused by
// key.
//
// Package token also writes chats as the models were trained to read them. It
// knows four forms and finds out from a model's template which one is meant; it
// does not run templates, which are programs.
package token
