package openai

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/messages"
)

// extendedChoice is what vLLM adds to choices.
type extendedChoice struct {
	Text     string
	Tokens   []messages.Token `json:"token_ids"`
	Prompt   []messages.Token `json:"prompt_token_ids"`
	Logprobs *struct {
		Tokens        []string
		TokenLogprobs []*float64           `json:"token_logprobs"`
		TopLogprobs   []map[string]float64 `json:"top_logprobs"`
		TextOffset    []int                `json:"text_offset"`
	}
	PromptLogprobs []map[string]promptLogprob `json:"prompt_logprobs"`
	Finish         string                     `json:"finish_reason"`
}

// extended is what vLLM adds to answers.
type extended struct {
	Choices []extendedChoice
	Usage   usage
	Prompt  []messages.Token `json:"prompt_token_ids"`

	PromptLogprobs []map[string]promptLogprob `json:"prompt_logprobs"`
}

func (s *site) extended(path, body string) (a extended) {
	s.Helper()
	status, text := s.post(path, body)
	require.Equal(s, 200, status, string(text))
	require.NoError(s, json.Unmarshal(text, &a))
	return a
}

// Each parameter of vLLM that is served does what it says.
func TestParametersOfVLLM(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{Draft: 2}, nil)
	say := func(more string) extended {
		return s.extended(chats, chatBody(`,"max_tokens":20,"return_token_ids":true`+more,
			"My name is Anna."))
	}
	greedy := say(`,"temperature":0`)
	tokens := greedy.Choices[0].Tokens
	require.Less(t, len(tokens), 15)
	assert.Equal(t, "stop", greedy.Choices[0].Finish)
	assert.Len(t, tokens, greedy.Usage.Completion, "the token that ended it is one of them")
	assert.Len(t, greedy.Prompt, greedy.Usage.Prompt)

	long := say(`,"temperature":0,"ignore_eos":true`)
	assert.Equal(t, "length", long.Choices[0].Finish)
	assert.Equal(t, 20, long.Usage.Completion)
	assert.Equal(t, tokens, long.Choices[0].Tokens[:len(tokens)])

	least := say(`,"temperature":0,"min_tokens":15`)
	assert.GreaterOrEqual(t, least.Usage.Completion, 15)
	assert.NotContains(t, least.Choices[0].Tokens[:15], tokens[len(tokens)-1])

	for _, more := range []string{`"top_k":1`, `"min_p":1`} {
		assert.Equal(t, tokens, say(`,"temperature":2,"seed":4,` + more).Choices[0].Tokens, more)
	}
	// Drawn texts are long enough to tell whether a parameter does something.
	drawn := func(more string) []messages.Token {
		a := say(`,"temperature":2,"n":3,"seed":4,"ignore_eos":true,"top_k":-1` + more)
		return slices.Concat(a.Choices[0].Tokens, a.Choices[1].Tokens, a.Choices[2].Tokens)
	}
	assert.Equal(t, drawn(""),
		drawn(
			`,"repetition_penalty":1,"presence_penalty":0,"frequency_penalty":0,"min_p":0,"logit_bias":{}`))
	for _, more := range []string{`"repetition_penalty":1.8`, `"presence_penalty":2`,
		`"frequency_penalty":2`, `"top_k":2`, `"min_p":0.5`} {
		assert.NotEqual(t, drawn(""), drawn(","+more), more)
	}
	for _, a := range say(
		`,"temperature":1,"ignore_eos":true,"logit_bias":{"77":250}`).Choices[0].Tokens {
		assert.Equal(t, messages.Token(77), a)
	}
	stopped := say(`,"temperature":0,"stop_token_ids":[` + jsonOf(tokens[1]) + `]`)
	assert.Equal(t, tokens[:2], stopped.Choices[0].Tokens)
	assert.Equal(t, "stop", stopped.Choices[0].Finish)
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// A stop text counts only behind min_tokens.
func TestStopTextAfterLeastTokens(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, nil)
	ask := func(more string) extended {
		return s.extended(completions,
			`{"model":"m","prompt":"My name is","max_tokens":12,"temperature":0,"ignore_eos":true,"return_token_ids":true`+more+`}`)
	}
	whole := ask("")
	stop := jsonOf(whole.Choices[0].Text[1:2])
	assert.Equal(t, whole.Choices[0].Text[:1], ask(`,"stop":` + stop).Choices[0].Text)
	assert.GreaterOrEqual(t, ask(`,"min_tokens":5,"stop":`+stop).Usage.Completion, 5)
}

// What lm-eval asks of a continuation: echo and logprobs, whatever is cached.
func TestLikelihoods(t *testing.T) {
	s := open(t, runner.Config{HostPages: 30}, scheduler.Config{Draft: 2}, nil)
	context, all := "My name is Anna and I live in Rome. What",
		"My name is Anna and I live in Rome. What is my name? Your name is Anna."
	tokens := s.tokens(all)
	body := `{"model":"m","prompt":[` + jsonOf(tokens) +
		`],"temperature":0,"max_tokens":1,"logprobs":1,"seed":1234,"echo":true}`
	cold := s.extended(completions, body)
	for range 2 { // what fills the cache with the prompt, or with its beginning
		s.ask(completions, `{"model":"m","max_tokens":4,"prompt":`+jsonOf(all)+`}`)
		s.ask(completions, `{"model":"m","max_tokens":4,"prompt":`+jsonOf(context)+`}`)
		warm := s.extended(completions, body)
		require.Equal(t, cold.Choices, warm.Choices)
	}
	list := cold.Choices[0].Logprobs
	require.Len(t, list.TokenLogprobs, len(tokens)+1)
	require.Len(t, list.TopLogprobs, len(tokens)+1)
	assert.Nil(t, list.TokenLogprobs[0])
	assert.Nil(t, list.TopLogprobs[0])
	assert.Equal(t, cold.Choices[0].Text, strings.Join(list.Tokens, ""))
	assert.True(t, strings.HasPrefix(cold.Choices[0].Text, all))
	for i, at := range list.TextOffset {
		assert.True(t, strings.HasPrefix(cold.Choices[0].Text[at:], list.Tokens[i]))
	}
	for i, top := range list.TopLogprobs[1:] {
		best := slices.Max(slices.Collect(maps.Values(top)))
		assert.LessOrEqual(t, *list.TokenLogprobs[i+1], best)
		assert.Contains(t, top, list.Tokens[i+1])
	}
	// The likelihood of a token is the one that it has when it is generated.
	next := s.extended(completions, `{"model":"m","prompt":`+jsonOf(tokens[:len(tokens)-1])+
		`,"max_tokens":1,"temperature":0,"logprobs":0,"logit_bias":{"`+jsonOf(tokens[len(tokens)-1])+
		`":100}}`)
	assert.InDelta(t, *list.TokenLogprobs[len(tokens)-1], *next.Choices[0].Logprobs.TokenLogprobs[0],
		1e-5)

	alone := s.extended(completions, `{"model":"m","prompt":`+jsonOf(all)+
		`,"max_tokens":0,"echo":true,"logprobs":1}`)
	assert.Equal(t, all, alone.Choices[0].Text)
	assert.Equal(t, list.TokenLogprobs[:len(tokens)], alone.Choices[0].Logprobs.TokenLogprobs)

	// A request without logprobs reuses the prompt, one with them kept nothing.
	assert.Positive(t,
		s.ask(completions, `{"model":"m","max_tokens":1,"prompt":`+jsonOf(all)+`}`).Usage.Details.Cached)
	assert.Zero(t, cold.Usage.Details.Cached)
}

// tokens are those of a text.
func (s *site) tokens(text string) []messages.Token {
	status, body := s.post("/tokenize", `{"prompt":`+jsonOf(text)+`}`)
	require.Equal(s, 200, status, string(body))
	var out tokenized
	require.NoError(s, json.Unmarshal(body, &out))
	return out.Tokens
}

func TestPromptLogprobs(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, nil)
	body := `{"model":"m","prompt":"My name is Anna and I live in Rome.","n":2,"max_tokens":3,"temperature":0,"prompt_logprobs":2,"return_token_ids":true}`
	cold := s.extended(completions, body)
	s.ask(completions, `{"model":"m","prompt":"My name is Anna and I live in Rome.","max_tokens":1}`)
	assert.Equal(t, cold.Choices, s.extended(completions, body).Choices)
	for _, c := range cold.Choices {
		require.Len(t, c.PromptLogprobs, len(c.Prompt))
		assert.Nil(t, c.PromptLogprobs[0])
		for i, by := range c.PromptLogprobs[1:] {
			chosen, is := by[jsonOf(c.Prompt[i+1])]
			require.True(t, is)
			assert.Positive(t, chosen.Rank)
			assert.GreaterOrEqual(t, len(by), 2)
			assert.LessOrEqual(t, len(by), 3)
		}
		assert.Len(t, c.Tokens, 3)
		assert.Nil(t, c.Logprobs)
	}
	chat := s.extended(chats, chatBody(`,"max_tokens":1,"prompt_logprobs":0`, "Hi"))
	assert.Len(t, chat.PromptLogprobs, chat.Usage.Prompt)
}

// A stream with an echo and tokens has them in its events.
func TestStreamOfTokens(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, nil)
	for path, body := range map[string]string{
		completions: `{"model":"m","prompt":"My name is","echo":true,"max_tokens":5,"temperature":0,"return_token_ids":true}`,
		chats:       chatBody(`,"max_tokens":5,"temperature":0,"return_token_ids":true`, "Hi"),
	} {
		whole := s.extended(path, body)
		answer, err := http.Post(s.url+path, "",
			strings.NewReader(strings.TrimSuffix(body, "}")+`,"stream":true}`))
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		all := extended{Choices: make([]extendedChoice, 1)}
		for line := range strings.Lines(string(text)) {
			event, is := strings.CutPrefix(strings.TrimSpace(line), "data: {")
			if !is {
				continue
			}
			var one extended
			require.NoError(t, json.Unmarshal([]byte("{"+event), &one))
			c := &all.Choices[0]
			c.Text += one.Choices[0].Text
			c.Tokens = append(c.Tokens, one.Choices[0].Tokens...)
			c.Prompt = append(c.Prompt, one.Choices[0].Prompt...)
			all.Prompt = append(all.Prompt, one.Prompt...)
		}
		assert.Equal(t, whole.Choices[0].Text, all.Choices[0].Text)
		assert.Equal(t, whole.Choices[0].Tokens, all.Choices[0].Tokens)
		assert.Equal(t, whole.Choices[0].Prompt, all.Choices[0].Prompt)
		assert.Equal(t, whole.Prompt, all.Prompt)
	}
}

func TestTokenize(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, func(c *Config) {
		end, is := c.Words.ID("<|im_end|>")
		require.True(t, is)
		c.Words.EOS = end
	})
	tokens := s.tokens("My name is Anna.")
	require.NotEmpty(t, tokens)
	status, text := s.post("/detokenize", `{"model":"m","tokens":`+jsonOf(tokens)+`}`)
	assert.Equal(t, 200, status)
	assert.JSONEq(t, `{"prompt":"My name is Anna."}`, string(text))
	status, text = s.post("/tokenize",
		`{"model":"m","messages":[{"role":"user","content":"Hi"}],"return_token_strs":true}`)
	assert.Equal(t, 200, status)
	var out tokenized
	require.NoError(t, json.Unmarshal(text, &out))
	assert.Len(t, out.Tokens, out.Count)
	assert.Len(t, out.Texts, out.Count)
	assert.Equal(t, 512, out.MaxLen)
	assert.Equal(t, out.Count, s.ask(chats, chatBody(`,"max_tokens":1`, "Hi")).Usage.Prompt)
	answer, err := http.Get(s.url + "/tokenizer_info")
	require.NoError(t, err)
	defer answer.Body.Close()
	var names map[string]any
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&names))
	assert.EqualValues(t, 512, names["model_max_length"])
	require.NotEmpty(t, names["eos_token"])
	status, text = s.post("/tokenize", `{"prompt":`+jsonOf(names["eos_token"])+
		`,"add_special_tokens":false}`)
	assert.Equal(t, 200, status)
	assert.Contains(t, string(text), `"count":1,`, "it is one token")
	for path, body := range map[string]string{
		"/tokenize": `{}`, "/detokenize": `{"tokens":[99999]}`, "/tokenize ": `{"prompt":"a","txt":1}`,
		"/detokenize ": `{"model":"x","tokens":[1]}`,
	} {
		status, text := s.post(strings.TrimSpace(path), body)
		assert.Contains(t, []int{400, 404}, status, string(text))
	}
}
