package kvconfig

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

var retentionReaders = map[string]func(io.Reader) (*messages.Retention, error){
	"json": ReadRetentionJSON, "yaml": ReadRetentionYAML,
}

func TestRetention(t *testing.T) {
	decode := func(p messages.Priority, d time.Duration) *messages.DecodeRetention {
		return &messages.DecodeRetention{Priority: p, Duration: d}
	}
	for _, c := range []struct {
		text string
		want messages.Retention
	}{
		{`{}`, messages.Retention{}},
		{
			`{"token_range_retention_configs": null, "decode_retention_priority": null,
		"decode_duration_ms": null,
				"transfer_mode": "DRAM", "directory": ""}`,
			messages.Retention{},
		},
		{
			`{"token_range_retention_configs": [
				{"token_start": 10, "token_end": null, "priority": 20, "duration_ms": null},
				{"token_start": 0, "token_end": 4, "priority": 100, "duration_ms": 1500}],
				"decode_retention_priority": 0, "decode_duration_ms": 10}`,
			messages.Retention{
				Ranges: []messages.RetentionRange{
					{Start: 10, End: messages.EndOfPrompt, Priority: 20},
					{End: 4, Priority: 100, Duration: 1500 * time.Millisecond},
				},
				Decode: decode(0, 10*time.Millisecond),
			},
		},
		// The defaults are those of TensorRT-LLM's constructors.
		{
			`{"token_range_retention_configs": [{"token_start": 3}], "decode_duration_ms": 1}`,
			messages.Retention{
				Ranges: []messages.RetentionRange{{Start: 3, End: messages.EndOfPrompt, Priority: 35}},
				Decode: decode(35, time.Millisecond),
			},
		},
		// The name that TensorRT-LLM's documents use.
		{`{"decode_retention_policy": 7}`, messages.Retention{Decode: decode(7, 0)}},
		{`{"decode_retention_policy": 7, "decode_retention_priority": 7}`,
			messages.Retention{Decode: decode(7, 0)}},
	} {
		for name, read := range retentionReaders {
			got, err := read(strings.NewReader(c.text))
			require.NoError(t, err, name)
			assert.Equal(t, &c.want, got, name)
		}
	}
}

func TestRetentionYAML(t *testing.T) {
	got, err := ReadRetentionYAML(
		strings.NewReader("token_range_retention_configs:\n- token_start: 0\n  priority: 80\n"))
	require.NoError(t, err)
	assert.Equal(t, []messages.RetentionRange{{End: messages.EndOfPrompt, Priority: 80}}, got.Ranges)
	got, err = ReadRetentionYAML(strings.NewReader(""))
	require.NoError(t, err)
	assert.True(t, got.IsZero())
}

// A retention is part of a request, so whatever is wrong with it is a bad request; all of it is
// said at once.
func TestRetentionRefusals(t *testing.T) {
	ranges := func(r string) string { return `{"token_range_retention_configs": [` + r + `]}` }
	for _, c := range []struct{ text, want string }{
		{`[]`, "the retention is a list, not an object"},
		{`{"ranges": []}`, "unknown name ranges"},
		{`{"token_range_retention_configs": {}}`,
			"token_range_retention_configs is an object, not a list"},
		{`{"decode_retention_priority": 101}`, "decode_retention_priority 101 is not between 0 and 100"},
		{`{"decode_retention_priority": "high"}`,
			"decode_retention_priority is a string, not an integer"},
		{`{"decode_retention_priority": [], "decode_retention_policy": []}`,
			"decode_retention_priority is a list, not an integer; decode_retention_policy is a list, not an integer"},
		{`{"decode_retention_priority": 1, "decode_retention_policy": 2}`,
			"decode_retention_priority 1 and decode_retention_policy 2 are one option with two values"},
		{`{"decode_retention_priority": 1, "decode_retention_priority":1}`, ""},
		{`{"decode_duration_ms": 0}`, "decode_duration_ms 0 is not between 1 and 3153600000000"},
		{`{"decode_duration_ms": 3153600000001}`, "decode_duration_ms 3153600000001 is not between"},
		{`{"transfer_mode": "GDS"}`, `transfer_mode "GDS" is not supported: an option for debugging`},
		{`{"directory": "/tmp"}`, `directory "/tmp" is not supported: an option for debugging`},
		{`{"transfer_mode": 1}`, "transfer_mode is an integer, not a string"},
		{ranges(`5`), "token_range_retention_configs[0] is an integer, not an object"},
		{ranges(`{"token_start": 0}, {"priority": 3}`),
			"token_range_retention_configs[1].token_start is missing"},
		{ranges(`{"token_start": -1}`), "token_range_retention_configs[0].token_start -1 is not"},
		{ranges(`{"token_start": 0, "token_end": -1}`),
			"token_range_retention_configs[0].token_end -1 is not"},
		{ranges(`{"token_start": 4, "token_end": 4}`),
			"token_range_retention_configs[0] is empty: [4, 4)"},
		{ranges(`{"token_start": 0, "end": 4}`), "unknown name token_range_retention_configs[0].end"},
		{ranges(`{"token_start": 0, "priority": -1}`),
			"token_range_retention_configs[0].priority -1 is not between 0 and 100"},
		{ranges(`{"token_start": 0, "duration_ms": 0.5}`),
			"token_range_retention_configs[0].duration_ms is a number with a fraction, not an integer"},
	} {
		for name, read := range retentionReaders {
			got, err := read(strings.NewReader(c.text))
			require.ErrorIs(t, err, messages.ErrBadRequest, "%s: %s", name, c.text)
			assert.ErrorContains(t, err, c.want, name)
			assert.Nil(t, got)
		}
	}
	_, err := ReadRetentionJSON(strings.NewReader(`{"a": 1, "decode_retention_priority": 200}`))
	require.ErrorContains(t, err, "unknown name a; decode_retention_priority 200 is not")
	_, err = ReadRetentionJSON(strings.NewReader(`{"decode_duration_ms": 99999999999999999999}`))
	require.ErrorContains(t, err, "decode_duration_ms 99999999999999999999 is too large")
	_, err = ReadRetentionJSON(strings.NewReader(`{`))
	require.ErrorContains(t, err, "the retention is not JSON: ")
	_, err = ReadRetentionYAML(strings.NewReader(`{`))
	require.ErrorContains(t, err, "the retention is not YAML: ")
}

// An options file has no place for what belongs to a request.
func TestRetentionInAConfiguration(t *testing.T) {
	for _, text := range []string{`{"kv_cache_retention_config": {}}`,
		`{"kv_cache_config": {"kv_cache_retention_config": {}}}`} {
		_, err := ReadJSON(strings.NewReader(text))
		require.ErrorIs(t, err, messages.ErrConfigInvalid)
		require.ErrorContains(t, err,
			"kv_cache_retention_config is not supported: a retention belongs to a request")
	}
}
