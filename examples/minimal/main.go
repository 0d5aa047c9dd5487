// Command minimal is the smallest host: two prompts, of which the second reuses what the
// first has computed.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/sim"
)

func main() {
	ctx := context.Background()
	device, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	check(err)
	model := kvactor.Model{
		Layers: 2, KVHeads: []int{8}, HeadDim: 16, DType: kvactor.Float16, MaxSeqLen: 4096,
	}
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	engine, err := kvactor.Open(kvactor.Config{Model: model, Cache: cache, Device: device})
	check(err)
	for _, prompt := range [][]kvactor.Token{{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 4, 5, 6, 70, 80}} {
		s, err := engine.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt})
		check(err)
		fmt.Println(s.Reused(), "of", len(prompt), "tokens reused, pages", s.Tables()[0][0])
		// A kernel that waits for s.Ready() writes keys and values of the other tokens into the pages.
		check(s.Commit(ctx, len(prompt), kvactor.Ticket{}))
		check(s.Release(ctx, kvactor.Ticket{}))
	}
	_, err = engine.Close(ctx)
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
