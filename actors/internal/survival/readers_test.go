package survival_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/kvconfig"
)

// hostileFiles are configurations in JSON, all of which are YAML too.
var hostileFiles = map[string]string{
	"a list":   `[]`,
	"a number": `42`,
	"a word":   `"tokens_per_block"`,
	"a deep nest": strings.Repeat(`{"kv_cache_config":`, 2000) + `{}` +
		strings.Repeat(`}`, 2000),
	"a deep list": `{"max_attention_window":` + strings.Repeat("[", 2000) +
		strings.Repeat("]", 2000) + `}`,
	"no such name":                   `{"tokens_per_blocks": 32}`,
	"a name of a megabyte":           `{"` + strings.Repeat("x", 1<<20) + `": 1}`,
	"a word for a number":            `{"tokens_per_block": "many"}`,
	"a list for a number":            `{"tokens_per_block": [32]}`,
	"a number for a list":            `{"max_attention_window": 32}`,
	"a number beyond int64":          `{"tokens_per_block": 9223372036854775808}`,
	"a number below int64":           `{"host_cache_size": -9223372036854775809}`,
	"a number with a part":           `{"tokens_per_block": 32.5}`,
	"a number beyond float64":        `{"free_gpu_memory_fraction": 1e400}`,
	"a window beyond int64":          `{"max_attention_window": [99999999999999999999]}`,
	"a window of 1":                  `{"max_attention_window": [1]}`,
	"no window":                      `{"max_attention_window": []}`,
	"a window that is none":          `{"max_attention_window": [{}]}`,
	"blocks of 24":                   `{"tokens_per_block": 24}`,
	"the largest int64":              `{"tokens_per_block": 9223372036854775807}`,
	"the smallest int64":             `{"sink_token_length": -9223372036854775808}`,
	"a number for yes":               `{"enable_block_reuse": 1}`,
	"a word for yes":                 `{"enable_block_reuse": "perhaps"}`,
	"uvm":                            `{"use_uvm": true}`,
	"a mode":                         `{"transfer_mode": "x"}`,
	"a fraction of 1":                `{"free_gpu_memory_fraction": 1}`,
	"a fraction of 0":                `{"free_gpu_memory_fraction": 0}`,
	"fractions of no pool":           `{"pool_fractions": {"": 1}}`,
	"fractions above 1":              `{"pool_fractions": {"wfullh1": 1.5}}`,
	"fractions in words":             `{"pool_fractions": {"wfullh1": "all"}}`,
	"priority 101":                   `{"secondary_offload_min_priority": 101}`,
	"events below 0":                 `{"event_buffer_max_size": -1}`,
	"an expected length of int64":    `{"expected_seq_len": 9223372036854775807}`,
	"max_tokens 0":                   `{"max_tokens": 0}`,
	"the same name twice":            `{"tokens_per_block": 32, "tokens_per_block": 24}`,
	"what follows":                   `{} {}`,
	"an end too early":               `{"tokens_per_block": `,
	"a control character":            "{\"dtype\": \"\x00\"}",
	"bytes that are no text":         "{\"dtype\": \"\xff\xfe\"}",
	"an inner object beside another": `{"kv_cache_config": {}, "tokens_per_block": 24}`,
}

// moreYAML is hostile as YAML alone.
var moreYAML = map[string]string{
	"no number":           "free_gpu_memory_fraction: .nan",
	"infinity":            "free_gpu_memory_fraction: .inf",
	"negative infinity":   "pool_fractions: {wfullh1: -.inf}",
	"a name that is none": "? [1, 2]\n: 3",
	"a loop":              "a: &a [*a]",
	"a billion laughs": "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
		"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\nmax_attention_window: *f",
	"a tab":         "tokens_per_block:\t- 32\n\t- 24",
	"two documents": "tokens_per_block: 24\n---\ntokens_per_block: 32",
}

// Whatever a file holds, reading and validating it ends with a refusal.
func TestHostileFilesAreRefused(t *testing.T) {
	refused := func(name, text string, read func(io.Reader) (windows.Config, error)) {
		c, err := read(strings.NewReader(text))
		err = windows.Join(err, c.Validate(modelOf(1)))
		if assert.Error(t, err, name) {
			assert.ErrorIs(t, err, messages.ErrConfigInvalid, name)
		}
	}
	for name, text := range hostileFiles {
		refused("JSON, "+name, text, kvconfig.ReadJSON)
		refused("YAML, "+name, text, kvconfig.ReadYAML)
	}
	for name, text := range moreYAML {
		refused("YAML, "+name, text, kvconfig.ReadYAML)
	}
}
