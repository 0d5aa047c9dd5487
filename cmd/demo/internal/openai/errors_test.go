package openai

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
)

// A wrong type is named in the words of JSON, beside what it should be: none of Go's.
func TestErrorsNameTypes(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, nil)
	for _, c := range []struct{ path, body, want string }{
		{chats, `[]`, "the body cannot be read: it is a list, not an object"},
		{chats, `7`, "the body cannot be read: it is a number, not an object"},
		{chats, `{"a":`, "the body cannot be read: its JSON ends too early"},
		{chats, chatBody(`,"max_tokens":"x"`, "a"), "max_tokens: it is a string, not an integer"},
		{chats, chatBody(`,"max_tokens":1.5`, "a"), "max_tokens: 1.5 is not an integer"},
		{chats, chatBody(`,"max_tokens":99999999999999999999`, "a"),
			"max_tokens: 99999999999999999999 is too large"},
		{chats, chatBody(`,"temperature":[]`, "a"), "temperature: it is a list, not a number"},
		{chats, chatBody(`,"temperature":1e999`, "a"), "temperature: 1e999 is too large"},
		{chats, chatBody(`,"stream":"yes"`, "a"), "stream: it is a string, not true or false"},
		{chats, chatBody(`,"stop":[1]`, "a"), "stop: it is a number, not a string"},
		{chats, chatBody(`,"stop":{}`, "a"), "stop: it is an object, not a list"},
		{chats, chatBody(`,"logit_bias":[]`, "a"), "logit_bias: it is a list, not an object"},
		{chats, chatBody(`,"logit_bias":{"1":"x"}`, "a"), "logit_bias: it is a string, not a number"},
		{chats, chatBody(`,"seed":1e50`, "a"), "seed: 1e50 is not an integer"},
		{chats, chatBody(`,"stop_token_ids":[true]`, "a"),
			"stop_token_ids: it is true or false, not an integer"},
		{chats, chatBody(`,"stop_token_ids":[99999999999]`, "a"),
			"stop_token_ids: 99999999999 is too large"},
		{chats, chatBody(`,"stream_options":5,"stream":true`, "a"),
			"stream_options: it is not an object"},
		{chats, `{"model":7}`, "model: it is a number, not a string"},
		{chats, `{"model":"m","messages":[1]}`, "messages: it is not a list of objects"},
		{"/detokenize", `{"tokens":"x"}`, "tokens: it is a string, not a list"},
	} {
		status, text := s.post(c.path, c.body)
		require.Equal(t, 400, status, c.body)
		assert.Contains(t, string(text), `"`+c.want+`"`, c.body)
	}
}

// refused is a body that is answered with an error.
type refused struct {
	path, body  string
	status      int
	param, want string
}

// refusedChats has all kinds of errors in the body of a chat.
func refusedChats() []refused {
	return []refused{
		{chats, `hello`, 400, "", "cannot be read"},
		{chats, `{} {}`, 400, "", "more than one"},
		{chats, strings.Repeat(" ", maxBody+1), 413, "", "bytes"},
		{chats, `{"messages":[]}`, 404, "model", "does not exist"},
		{chats, `{"model":"m"}`, 400, "messages", "none"},
		{chats, chatBody(`,"temperature":"x"`, "a"), 400, "temperature", "string"},
		{chats, chatBody(`,"temperature":3`, "a"), 400, "temperature", "within"},
		{chats, chatBody(`,"top_p":0`, "a"), 400, "top_p", "above"},
		{chats, chatBody(`,"n":0`, "a"), 400, "n", "less"},
		{chats, chatBody(`,"n":5`, "a"), 400, "", "at most 4"},
		{chats, chatBody(`,"max_tokens":0`, "a"), 400, "max_tokens", "less"},
		{chats, chatBody(`,"stop":""`, "a"), 400, "stop", "bytes"},
		{chats, chatBody(`,"stop":7`, "a"), 400, "stop", "number"},
		{chats, chatBody(`,"cache_salt":""`, "a"), 400, "cache_salt", "bytes"},
		{chats, chatBody(`,"stream_options":{}`, "a"), 400, "stream_options", "stream"},
		{chats, `[]`, 400, "", "it is a list, not an object"},
		{chats, `null`, 400, "", "it is null, not an object"},
		{chats, ``, 400, "", "empty"},
		{chats, chatBody(`,"frequency_penalty":3`, "a"), 400, "frequency_penalty", "within"},
		{chats, chatBody(`,"presence_penalty":-3`, "a"), 400, "presence_penalty", "within"},
		{chats, chatBody(`,"repetition_penalty":0`, "a"), 400, "repetition_penalty", "above"},
		{chats, chatBody(`,"min_p":2`, "a"), 400, "min_p", "within"},
		{chats, chatBody(`,"top_k":-2`, "a"), 400, "top_k", "less"},
		{chats, chatBody(`,"top_k":1.5`, "a"), 400, "top_k", "1.5 is not an integer"},
		{chats, chatBody(`,"min_tokens":-1`, "a"), 400, "min_tokens", "less"},
		{chats, chatBody(`,"min_tokens":9,"max_tokens":8`, "a"), 400, "min_tokens", "more"},
		{chats, chatBody(`,"logit_bias":{"a":1}`, "a"), 400, "logit_bias", "no token"},
		{chats, chatBody(`,"logit_bias":{"99999":1}`, "a"), 400, "", "vocabulary"},
		{chats, chatBody(`,"stop_token_ids":[99999]`, "a"), 400, "", "vocabulary"},
		{chats, chatBody(`,"prompt_logprobs":1,"stream":true`, "a"), 400, "prompt_logprobs", "stream"},
		{chats, chatBody(`,"logprobs":true,"top_logprobs":-1`, "a"), 400, "top_logprobs",
			"whole vocabulary"},
		{chats, chatBody(`,"temprature":1`, "a"), 400, "temprature", "no such"},
		{chats, chatBody(`,"Temperature":1`, "a"), 400, "Temperature", "no such"},
		{chats, chatBody(`,"temprature":null`, "a"), 400, "temprature", "no such"},
		{chats, chatBody(`,"prompt":"b"`, "a"), 400, "prompt", "no such"},
		{chats, chatBody(`,"stream":true,"stream_options":{"include_usages":true}`, "a"), 400,
			"stream_options.include_usages", "no such"},
		{chats, chatBody(`,"length_penalty":2`, "a"), 400, "length_penalty", "not supported"},
		{chats, `{"model":"m","messages":[{"role":"user","content":"x"},{"role":"user","contents":"x"}]}`,
			400, "messages[1].contents", "no such"},
		{chats,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","txt":"y"}]}]}`,
			400, "messages[0].content[0].txt", "no such"},
		{chats, `{"model":"m","messages":{}}`, 400, "messages", "list"},
		{chats, chatBody(`,"tools":[{}]`, "a"), 400, "tools", "not supported"},
		{chats, chatBody(`,"functions":[{}]`, "a"), 400, "functions", "not supported"},
		{chats, chatBody(`,"response_format":{"type":"json_object"}`, "a"), 400, "response_format",
			"not supported"},
		{chats, chatBody(`,"top_logprobs":1`, "a"), 400, "top_logprobs", "logprobs"},
		{chats, `{"model":"m","messages":[{"role":"tool","content":"x"}]}`, 400, "messages[0].role",
			"not supported"},
		{chats, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400,
			"messages[0].content[0].type", "image_url"},
		{chats, `{"model":"m","messages":[{"role":"user"}]}`, 400, "messages[0].content", "missing"},
		{chats, `{"model":"m","messages":[{"role":"system","content":null}]}`, 400, "messages[0].content",
			"missing"},
	}
}

// refusedCompletions has those that only a body with a prompt can have.
func refusedCompletions() []refused {
	long, _ := json.Marshal(strings.Repeat("word ", 600))
	fits, _ := json.Marshal(strings.Repeat("a", 300))
	return []refused{
		{completions, `{"model":"m","prompt":"a","prompt_logprobs":-1}`, 400, "prompt_logprobs",
			"the whole vocabulary, is not supported: at most 20"},
		{completions, `{"model":"m","prompt":"a","logprobs":-1}`, 400, "logprobs", "whole vocabulary"},
		{completions, `{"model":"m","prompt":"a","max_tokens":0}`, 400, "max_tokens", "less"},
		{completions, `{"model":"m","prompt":"a","messages":[]}`, 400, "messages", "no such"},
		{completions, `{"model":"m"}`, 400, "prompt", "missing"},
		{completions, `{"model":"m","prompt":{}}`, 400, "prompt", "none of"},
		{completions, `{"model":"m","prompt":[9999]}`, 400, "", "vocabulary"},
		{completions, `{"model":"m","prompt":""}`, 400, "", "empty"},
		{completions, `{"model":"m","prompt":"a","suffix":"b"}`, 400, "suffix", "not supported"},
		{completions, `{"model":"m","prompt":"a","best_of":2}`, 400, "best_of", "n"},
		{completions, `{"model":"m","prompt":"a","logprobs":99}`, 400, "logprobs", "within"},
		{completions, `{"model":"m","prompt":` + string(long) + `}`, 400, "", "longest"},
		{completions, `{"model":"m","prompt":` + string(fits) + `}`, 400, "", "cache"},
		{completions, `{"model":"m","stream":true,"prompt":` + string(fits) + `}`, 400, "", "cache"},
	}
}

func TestErrors(t *testing.T) {
	s := open(t, runner.Config{Pages: 20}, scheduler.Config{Running: 4}, nil)
	for _, c := range slices.Concat(refusedChats(), refusedCompletions()) {
		status, text := s.post(c.path, c.body)
		var a answer
		require.NoError(t, json.Unmarshal(text, &a), string(text))
		require.NotNil(t, a.Error, c.body)
		assert.Equal(t, c.status, status, string(text))
		assert.Equal(t, c.param, a.Error.Param, string(text))
		assert.Contains(t, a.Error.Message, c.want)
		assert.NotEmpty(t, a.Error.Type)
	}
	// Values that change nothing, an answer sent back, content as parts, and a null are fine.
	assert.Len(t, s.ask(chats, `{"model":"m","max_tokens":1,"user":"u","tools":[],"tool_choice":"auto",
		"response_format":{"type":"text"},"length_penalty":1.0,"metadata":{"a":"b"},
		"messages":[{"role":"user","content":"Hi"},
		{"role":"assistant","content":"Hi","refusal":null,"tool_calls":[],"audio":null}]}`).Choices, 1)
	assert.Len(t, s.ask(chats, `{"model":"m","stop":null,"max_completion_tokens":1,
		"messages":[{"role":"developer","content":"a"},
		{"role":"user","content":[{"type":"text","text":"Hi"}]}]}`).Choices, 1)
}
