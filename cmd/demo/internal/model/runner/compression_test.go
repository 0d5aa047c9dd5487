package runner_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/zstd"
	"github.com/kvactor/kvactor/windows"
)

// measuredCompressor counts what a compressor is given and what it makes of it.
type measuredCompressor struct {
	stores.Compressor
	total *compression
}

// compression is what all compressors of an engine have done.
type compression struct {
	sync.Mutex
	in, out                  int
	compressed, decompressed time.Duration // the time that each took
}

func (c measuredCompressor) Compress(dst, src []byte) []byte {
	start := time.Now()
	out := c.Compressor.Compress(dst, src)
	compressed := time.Now()
	if err := c.Decompress(make([]byte, len(src)), out[len(dst):]); err != nil {
		panic(err)
	}
	decompressed := time.Now()
	c.total.Lock()
	defer c.total.Unlock()
	c.total.in, c.total.out = c.total.in+len(src), c.total.out+len(out)-len(dst)
	c.total.compressed += compressed.Sub(start)
	c.total.decompressed += decompressed.Sub(compressed)
	return out
}

// BenchmarkCompression is what Zstandard makes of the pages that a real model's conversations leave
// in a store: compressed bytes for each byte, and bytes a second of one core each way.
func BenchmarkCompression(b *testing.B) {
	m, _, _, g := smolLM2(b)
	var talk []messages.Token // five questions with their answers
	for _, c := range g.Chat.Cases {
		talk = append(append(talk, c.Tokens...), c.Greedy...)
	}
	for _, dtype := range []windows.DType{windows.Float32, windows.Float16, windows.BFloat16,
		windows.Int8, windows.FP8} {
		b.Run(string(dtype), func(b *testing.B) {
			total := &compression{}
			for b.Loop() {
				var store stores.Memory
				r, err := runner.Open(m, runner.Config{
					TokensPerBlock: 16, MaxLen: 512, HostPages: 64, DType: dtype,
					Options: []actors.Option{actors.WithStore(actors.StoreConfig{
						Store: &store, Model: "smollm2", Save: actors.SaveOnCommit, WaitForCopies: true,
						Compressor: func() stores.Compressor {
							c, err := zstd.New()
							require.NoError(b, err)
							return measuredCompressor{c, total}
						},
					})},
				})
				require.NoError(b, err)
				s, err := r.Admit(b.Context(), runner.Request{Tokens: talk})
				require.NoError(b, err)
				require.NoError(b, r.Prefill(b.Context(), s))
				require.NoError(b, r.Release(b.Context(), s))
				_, err = actors.StoreOf(r.Engine.Actors()).Flush(b.Context(), 0)
				require.NoError(b, err)
				require.NoError(b, r.Close())
			}
			require.Positive(b, total.in)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(total.out)/float64(total.in), "compressed/byte")
			b.ReportMetric(float64(total.in)/total.compressed.Seconds()/1e6, "compress-MB/s")
			b.ReportMetric(float64(total.in)/total.decompressed.Seconds()/1e6, "decompress-MB/s")
		})
	}
}
