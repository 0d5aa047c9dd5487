package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/messages"
)

// A configuration for vLLM is one for kvactor; only the default endpoint differs.
func TestConfigOfVLLM(t *testing.T) {
	c, err := ParseConfig([]byte(`{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557",
		"replay_endpoint": "tcp://*:5558", "buffer_steps": 7, "hwm": 8, "max_queue_size": 9, "topic": "kv@pod@model"}`))
	require.NoError(t, err)
	assert.Equal(t, Config{
		Enable: true, Publisher: "zmq", Endpoint: "tcp://*:5557", ReplayEndpoint: "tcp://*:5558",
		BufferSteps: 7, HWM: 8, MaxQueueSize: 9, Topic: "kv@pod@model",
	}, c)
	c, err = ParseConfig([]byte(`{"publisher": null}`))
	require.NoError(t, err)
	assert.Equal(t, Default(), c)
}

func TestConfigsThatAreRefused(t *testing.T) {
	for _, text := range []string{
		``, `{}{}`, `[]`, `{"topics": "x"}`, `{"publisher": "nats"}`, `{"format": "dynamo"}`,
		`{"buffer_steps": 0}`, `{"hwm": -1}`,
		`{"max_queue_size": -1}`, `{"endpoint": "inproc://x"}`, `{"endpoint": "tcp://x"}`,
		`{"endpoint": "tcp://*:70000"}`, `{"replay_endpoint": "ipc://"}`,
	} {
		_, err := ParseConfig([]byte(text))
		assert.ErrorIs(t, err, messages.ErrConfigInvalid, text)
	}
}

// vLLM's rule says whether to listen or to connect; the rank is added to the port.
func TestEndpoints(t *testing.T) {
	no := false
	for _, c := range []struct {
		text string
		rank int
		bind *bool
		want endpoint
	}{
		{"tcp://*:5557", 0, nil, endpoint{"tcp", ":5557", true}},
		{"tcp://*:5557", 3, nil, endpoint{"tcp", ":5560", true}},
		{"tcp://*:0", 3, nil, endpoint{"tcp", ":0", true}},
		{"tcp://[::]:5557", 0, nil, endpoint{"tcp", "[::]:5557", true}},
		{"tcp://127.0.0.1:5557", 0, nil, endpoint{"tcp", "127.0.0.1:5557", true}},
		{"tcp://localhost:5557", 0, &no, endpoint{"tcp", "localhost:5557", false}},
		{"tcp://10.0.0.7:5557", 0, nil, endpoint{"tcp", "10.0.0.7:5557", false}},
		{"ipc:///run/kv", 0, nil, endpoint{"unix", "/run/kv", true}},
		{"ipc:///run/kv", 2, nil, endpoint{"unix", "/run/kv_dp2", true}},
	} {
		got, err := parseEndpoint(c.text, c.rank, c.bind)
		require.NoError(t, err, c.text)
		assert.Equal(t, c.want, got, c.text)
	}
	_, err := parseEndpoint("tcp://*:65535", 1, nil)
	require.Error(t, err)
}

// The log keeps as many batches and bytes as it may, and always the newest.
func TestTheLogIsBounded(t *testing.T) {
	l := log{limit: 3, limitBytes: 10}
	push := func(n int) { l.push(&sent{payload: make([]byte, n), changes: []publish.Change{}}) }
	for range 5 {
		push(1)
	}
	assert.Equal(t, uint64(2), l.first())
	push(9)
	assert.Equal(t, uint64(4), l.first())
	push(50)
	assert.Equal(t, uint64(6), l.first())
	list, whole := l.since(6)
	assert.True(t, whole)
	assert.Len(t, list, 1)
	_, whole = l.since(5)
	assert.False(t, whole)
	list, whole = l.since(7)
	assert.True(t, whole)
	assert.Empty(t, list)
	assert.Equal(t, 50, l.bytes)
}

// Whatever the text is, it is refused or gives a configuration that can be used.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"enable_kv_cache_events": true, "endpoint": "tcp://*:5557"}`))
	f.Add([]byte(`{"endpoint": "ipc:///x", "bind": false}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text)
		if err != nil {
			return
		}
		require.NoError(t, c.Validate())
		if c.Endpoint != "" {
			_, err = parseEndpoint(c.Endpoint, 0, c.Bind)
			require.NoError(t, err)
		}
	})
}
