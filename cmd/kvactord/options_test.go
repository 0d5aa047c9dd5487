package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/metrics"
	"github.com/kvactor/kvactor/windows"
)

// The file has the configuration of the cache, and flags come before it.
func TestFlagsAndFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "cache.yaml")
	text := "eviction_policy: forecast\nhost_cache_size: 1048576\n" +
		"salt_quotas: {silver: 0.25, gold: 0.75}\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	read := func(args ...string) *flags {
		f, set := &flags{}, pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(set)
		args = append(args, "--socket", dir+"/s", "--memory", "8MiB", "--config", file)
		require.NoError(t, set.Parse(args))
		_, closeStore, err := f.read(t.Context(), io.Discard)
		require.NoError(t, err)
		require.NoError(t, closeStore())
		return f
	}
	f := read()
	assert.EqualValues(t, 8<<20, f.MemoryBytes)
	assert.Equal(t, windows.Forecast, f.Cache.EvictionPolicy)
	assert.EqualValues(t, 1<<20, f.Cache.HostCacheSize)
	assert.Equal(t, map[string]float64{"silver": 0.25, "gold": 0.75}, f.Cache.SaltQuotas)
	assert.Nil(t, f.Store)
	assert.Empty(t, f.Listen)
	f = read("--policy", "priority_lru", "--staging", "2MiB", "--quota", "gold=0.5",
		"--quota", "*=0.125", "--store", "file://"+dir+"/store", "--save", "evict",
		"--aliases", "vllm,trtllm", "--allow-uid", "7")
	assert.Equal(t, windows.PriorityLRU, f.Cache.EvictionPolicy)
	assert.EqualValues(t, 2<<20, f.Cache.HostCacheSize)
	assert.Equal(t, map[string]float64{"silver": 0.25, "gold": 0.5}, f.Cache.SaltQuotas)
	assert.InDelta(t, 0.125, f.Cache.OtherSaltsQuota, 0)
	require.NotNil(t, f.Store)
	assert.Equal(t, actors.SaveHostEvict, f.Store.Save)
	assert.Equal(t, metrics.AliasVLLM|metrics.AliasVLLMLegacy|metrics.AliasTensorRTLLM, f.Aliases)
	assert.Equal(t, []uint32{7}, f.UIDs)
}

// Metrics and events of the engine are at the addresses that flags name.
func TestMetricsAndEvents(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	endpoint := fmt.Sprintf("tcp://%s", free.Addr())
	require.NoError(t, free.Close())
	socket := filepath.Join(t.TempDir(), "s")
	d := daemonAt(t, socket, "--metrics", "127.0.0.1:0", "--aliases", "vllm", "--events", endpoint)
	c := dial(t, socket)
	subscriber := zmq4.NewSub(t.Context(), zmq4.WithDialerRetry(10*time.Millisecond))
	defer subscriber.Close()
	require.NoError(t, subscriber.Dial(endpoint))
	require.NoError(t, subscriber.SetOption(zmq4.OptionSubscribe, ""))
	published := make(chan zmq4.Msg, 1)
	go func() {
		message, _ := subscriber.Recv()
		published <- message
	}()
	for n := 1; len(published) == 0; n++ { // until the subscription has come
		require.Less(t, n, 64, "nothing is published")
		require.NoError(t, write(c, n, n))
		time.Sleep(100 * time.Millisecond)
	}
	assert.NotEmpty(t, (<-published).Frames)
	page := regexp.MustCompile(`http://\S+`).FindString(d.log.String())
	answer, err := http.Get(page + "metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.Contains(t, string(text), "kvactor_")
	assert.Contains(t, string(text), "vllm:")
}
