// Command example is a client of the daemon: it stores what it has "computed" of a prompt, and
// finds it again. Run it twice with the path of the daemon's socket: the second time all is stored.
package main

import (
	"fmt"
	"os"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

func main() {
	c, err := wire.Dial(os.Args[1], &wire.Open{
		Name: "example", Fingerprint: "my-weights, float16", BlockTokens: 16, MaxTokens: 4096,
		Groups: []*wire.Group{{Name: "all layers", LayerBytes: []uint64{4096, 4096}}},
	})
	check(err)
	defer c.Close()
	pool := c.Opened.Pools[0]
	memory, err := pool.Map()
	check(err)
	page := func(n int32) []byte { return memory[uint64(n)*pool.PageBytes:][:pool.PageBytes] }

	tokens := make([]int32, 4*16+5)
	for i := range tokens {
		tokens[i] = int32(1000 + i)
	}
	// What is stored: its pages may be read until the release.
	step, err := c.Step(&wire.Step{
		Matches: []*wire.Match{{Prompt: &wire.Prompt{Tokens: wire.PackTokens(tokens)}}},
	})
	check(err)
	found := step.Matches[0]
	fmt.Println(found.Tokens, "of", len(tokens), "tokens are stored")
	for i := range found.Tokens / 16 {
		fmt.Println("block", i, "begins with", page(wire.UnpackPages(found.Pages[0])[i])[0])
	}
	// Pages for the whole blocks that are not: write them, then say so.
	whole := &wire.Prompt{Tokens: wire.PackTokens(tokens[:4*16])}
	step, err = c.Step(&wire.Step{Releases: []uint64{found.Handle},
		Reserves: []*wire.Reserve{{Prompt: whole}}})
	check(err)
	write := step.Reserves[0]
	if write.Handle == 0 {
		return // all is stored
	}
	for i, n := range wire.UnpackPages(write.Pages[0]) {
		if n >= 0 {
			page(n)[0] = byte(i + 1) // the keys and values of block i
		}
	}
	_, err = c.Step(&wire.Step{Written: []*wire.Written{{Handle: write.Handle, Tokens: 4 * 16}},
		Releases: []uint64{write.Handle}})
	check(err)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
