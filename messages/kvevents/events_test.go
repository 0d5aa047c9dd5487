package kvevents

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// In JSON a hash is 32 hexadecimal digits, and what an event does not set is left
// out; reading it back gives the same event.
func TestEventsInJSON(t *testing.T) {
	hash := Hash{0xab, 15: 0x01}
	for _, c := range []struct {
		event Event
		want  string
	}{
		{
			Event{ID: 3, Type: EventStored, Pool: 1, Parent: hash, HasParent: true,
				Blocks: []StoredBlock{{Hash: hash, Tokens: []messages.Token{7}, Tier: messages.Secondary,
					Priority: 35}}},
			`{"id":3,"type":"stored","pool":1,"parent":"ab000000000000000000000000000001","has_parent":true,` +
				`"blocks":[{"hash":"ab000000000000000000000000000001","tokens":[7],"tier":"secondary","priority":35}]}`,
		},
		{Event{Type: EventRemoved, Hashes: []Hash{hash}},
			`{"id":0,"type":"removed","pool":0,"hashes":["ab000000000000000000000000000001"]}`},
		{
			Event{Type: EventUpdated, Hash: hash, TierChanged: true, NewTier: messages.Secondary},
			`{"id":0,"type":"updated","pool":0,"hash":"ab000000000000000000000000000001","tier_changed":true,"new_tier":"secondary"}`,
		},
		{Event{Type: EventCleared}, `{"id":0,"type":"cleared","pool":0}`},
	} {
		text, err := json.Marshal(c.event)
		require.NoError(t, err)
		assert.Equal(t, c.want, string(text))
		var back Event
		require.NoError(t, json.Unmarshal(text, &back))
		assert.Equal(t, c.event, back)
	}
	var h Hash
	assert.ErrorIs(t, json.Unmarshal([]byte(`"ab"`), &h), messages.ErrBadRequest)
	assert.Error(t, json.Unmarshal([]byte(`"zz000000000000000000000000000001"`), &h))
	var tier messages.Tier
	assert.ErrorIs(t, json.Unmarshal([]byte(`"third"`), &tier), messages.ErrBadRequest)
}
