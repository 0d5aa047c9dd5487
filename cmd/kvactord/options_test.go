package main

import (
	"bytes"
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

// A file of TensorRT-LLM's options may have keys that a session sets, or that are about GPU memory.
// Each is refused with what sets it instead.
func TestKeysOfSessions(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "trtllm.yaml")
	text := "max_batch_size: 8\nkv_cache_config: {tokens_per_block: 64, dtype: fp8, " +
		"host_cache_size: 2097152, " +
		"max_attention_window: [512, 4096], sink_token_length: 4, free_gpu_memory_fraction: 0.8}\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	var errs bytes.Buffer
	args := []string{"--socket", dir + "/s", "--memory", "1MiB", "--config", file}
	status := run(t.Context(), args, io.Discard, &errs)
	assert.NotZero(t, status)
	for _, want := range []string{
		"tokens_per_block 64: sessions set it, as block_tokens of Open,",
		"max_attention_window [512 4096]: sessions set it, as window of their groups,",
		"dtype fp8: sessions set the bytes of a block, as layer_bytes of their groups,",
		"sink_token_length 4: groups of sessions have no sinks,",
		"free_gpu_memory_fraction 0.8: the daemon uses no GPU memory, and --memory sets its size,",
		"host_cache_size 2097152: this part of the memory takes what a store brings, " +
			"and must be less than its 1048576 bytes",
	} {
		assert.Contains(t, errs.String(), want)
	}
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
