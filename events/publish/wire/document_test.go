package wire

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages/kvevents"
)

// docs/events.md says what each field of events in JSON is.
func TestFieldsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/events.md")
	require.NoError(t, err)
	inside, overHTTP, found := strings.Cut(string(text), "## Over HTTP")
	require.True(t, found)
	for page, records := range map[string][]any{
		inside:   {kvevents.EventBatch{}, kvevents.Event{}, kvevents.StoredBlock{}},
		overHTTP: {toldBatch{}, toldEvent{}},
	} {
		for _, r := range records {
			for f := range fields(reflect.TypeOf(r)) {
				assert.Contains(t, page, "`"+f+"`", "%T", r)
			}
		}
	}
	for _, word := range kinds {
		assert.Contains(t, overHTTP, "`"+word+"`")
	}
}

// fields are the names of a record's fields in JSON.
func fields(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "-" && name != "" {
			names[name] = true
		}
	}
	return names
}
