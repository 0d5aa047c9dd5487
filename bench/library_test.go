package bench

import (
	"sync"

	"github.com/kvactor/kvactor/messages"
)

// library is an engine with a million resident blocks and the prompts that
// made them. It is built once and shared: no one may store into it.
type library struct {
	do    do
	long  []text // of longText tokens
	short []text // of shortText tokens
}

// text is a stored prompt, as a host asks for it and as the floor has it. ask
// has one token more than is stored, so that all of what is stored can be
// reused.
type text struct{ ask, stored []messages.Token }

const (
	longText  = 102_400
	shortText = 4096
	// sharedText is the system prompt that texts of one group begin with.
	sharedText = 1024
	group      = 16
)

// theLibrary is half long texts and half short ones: 102,400-token prompts as
// of documents and code, 4,096-token ones as of chats, in groups that share
// their first 1,024 tokens. 1.0 million blocks in each of three pools.
var theLibrary = sync.OnceValue(func() *library {
	blocks := scaled(1_000_000)
	l := &library{}
	e, stop := hybrid(blocks + 1<<16).spawn()
	l.do = serve(e)
	closers = append(closers, stop)
	r := dice(1)
	fill := func(tokens, count int) []text {
		texts := make([]text, count)
		var begin []messages.Token
		for i := range texts {
			if i%group == 0 {
				begin = random(r, sharedText)
			}
			ask := append(append(make([]messages.Token, 0, tokens+1), begin...),
				random(r, tokens-sharedText)...)
			newCalls(ask).store(l.do)
			stored := append([]messages.Token(nil), ask...)
			texts[i] = text{ask: append(ask, vocabulary), stored: stored}
		}
		return texts
	}
	l.long = fill(longText, blocks/2*tokensPerBlock/longText)
	l.short = fill(shortText, blocks/2*tokensPerBlock/(shortText-sharedText))
	return l
})
