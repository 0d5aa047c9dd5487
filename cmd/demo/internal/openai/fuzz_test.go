package openai

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRequests: the body of a request is accepted within its limits, or refused with a
// status of the client.
func FuzzRequests(f *testing.F) {
	for _, text := range []string{
		`{"model":"m","prompt":"a","n":2,"max_tokens":4,"stop":["b","c"],"logprobs":2,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"m","prompt":[[1,2],[3]],"temperature":0.5,"top_p":0.9,"seed":-1,"cache_salt":"s"}`,
		`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"}]}],"max_completion_tokens":3}`,
		`{"model":"m","prompt":"a","top_k":-1,"min_p":0.1,"logit_bias":{"5":-200},"echo":true,"max_tokens":0,"prompt_logprobs":3}`,
		`{"model":"other","prompt":null}`, `[]`, `{"model":"m","prompt":1e400}`,
	} {
		f.Add([]byte(text))
	}
	v := &Server{config: Config{Name: "m", MaxLen: 64}}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, on := range []endpoint{completion, chat} {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(text)))
			q, e := v.accept(httptest.NewRecorder(), r, on)
			if e != nil {
				require.GreaterOrEqual(t, e.status, 400)
				require.Less(t, e.status, 500)
				require.NotEmpty(t, e.message)
				continue
			}
			require.Equal(t, "m", q.model)
			if on == completion {
				require.LessOrEqual(t, len(q.prompt.texts)+len(q.prompt.tokens), maxPrompts)
				require.Positive(t, len(q.prompt.texts)+len(q.prompt.tokens))
			} else {
				require.NotEmpty(t, q.messages)
			}
		}
	})
}
