// Package openai serves a model over HTTP in the form of OpenAI's API, for clients
// that speak it: text and chat completions, at once or as a stream of events.
//
//	GET  /v1/models, /v1/models/NAME
//	POST /v1/completions       prompts as text or tokens, one or several
//	POST /v1/chat/completions  messages, in the model's own form
//	POST /tokenize, /detokenize
//	POST /reset_prefix_cache, /invalidate_prefix_cache, /set_weights   with Config.Operations
//	GET  /health, /healthz     200 while the model is served
//
// Everything else is answered 404, and every error in OpenAI's form. One table, request.fields,
// has all parameters. Any other name is refused, wherever it is in the body, and those that are
// known and not served are refused unless their values change nothing. Parameters that OpenAI
// does not have mean what they mean in vLLM.
//
// Two fields are about the cache. usage.prompt_tokens_details.cached_tokens counts the
// tokens of prompts whose keys and values were reused. cache_salt, as vLLM spells it,
// separates tenants: a prompt reuses only what requests with the same salt have left.
package openai
