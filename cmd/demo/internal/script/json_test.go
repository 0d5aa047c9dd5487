package script

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// whole reads a value with nothing but this package's reader.
func whole(r raw) any {
	switch r.kind() {
	case kindObject:
		out := make(map[string]any)
		fields, twice := r.fields()
		if twice != nil {
			return "twice " + *twice
		}
		for _, f := range fields {
			out[f.name] = whole(f.value)
		}
		return out
	case kindList:
		out := []any{}
		_ = r.each(func(_ int, item raw) error {
			out = append(out, whole(item))
			return nil
		})
		return out
	case kindText:
		return text(r)
	case kindFlag:
		return r[0] == 't'
	case kindNull:
		return nil
	default:
		return json.Number(r)
	}
}

// anyJSON draws a value.
func anyJSON(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.String().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil), rapid.Int64().AsAny(),
		rapid.Float64Range(-1e9, 1e9).AsAny(),
	}
	if depth > 0 {
		leaves = append(leaves,
			rapid.SliceOfN(anyJSON(depth-1), 0, 4).AsAny(),
			rapid.MapOfN(rapid.StringN(0, 3, -1), anyJSON(depth-1), 0, 4).AsAny())
	}
	return rapid.OneOf(leaves...)
}

func TestTheReaderReadsWhatTheLibraryReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := anyJSON(3).Draw(t, "value")
		line, err := json.Marshal(value)
		require.NoError(t, err)
		if rapid.Bool().Draw(t, "indented") {
			line, err = json.MarshalIndent(value, "\t", " ")
			require.NoError(t, err)
		}
		r, err := parse(line)
		require.NoError(t, err)
		library := json.NewDecoder(bytes.NewReader(line))
		library.UseNumber()
		var want any
		require.NoError(t, library.Decode(&want))
		require.Equal(t, want, whole(r))
	})
}

func TestReaderEdges(t *testing.T) {
	cases := map[string]any{
		` { } `: map[string]any{},
		`[ ]`:   []any{},
		`{"a" : [ 1 , {"b":"]}"} ] ,"c":"\"\\" }`: map[string]any{"a": []any{json.Number("1"),
			map[string]any{"b": "]}"}}, "c": `"\`},
		`"\u00e9\n"`:         "é\n",
		`{"\u0061":1,"a":2}`: "twice a",
		`-0`:                 json.Number("-0"),
	}
	for line, want := range cases {
		r, err := parse([]byte(line))
		require.NoError(t, err, line)
		assert.Equal(t, want, whole(r), line)
	}
}

func TestIntegers(t *testing.T) {
	cases := []struct {
		text string
		n    int64
		ok   bool
	}{
		{"0", 0, true}, {"-0", 0, true}, {"-12", -12, true},
		{"9223372036854775807", math.MaxInt64, true}, {"9223372036854775808", math.MaxInt64, true},
		{"-9223372036854775809", math.MinInt64, true},
		{"1.0", 0, false}, {"1e3", 0, false}, {"1E3", 0, false}, {`"1"`, 0, false}, {"true", 0, false},
	}
	for _, c := range cases {
		n, ok := integer(raw(c.text))
		assert.Equal(t, c.ok, ok, c.text)
		assert.Equal(t, c.n, n, c.text)
	}
}
