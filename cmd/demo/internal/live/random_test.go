package live_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
)

// randomScript makes a script of n requests that is a function of the seed: few
// sequences whose prompts share beginnings, on so few pages that they evict one
// another. Two engines that answer it alike, but for what the protocol leaves
// open, take the same decisions.
func randomScript(seed uint64, n int) []byte {
	a := &author{Rand: rand.New(rand.NewPCG(seed, 0x5eed))}
	a.open()
	for range n {
		a.request()
		if a.IntN(4) == 0 {
			a.say(object{"op": "stats"})
			a.say(object{"op": "events"})
		}
	}
	a.say(object{"op": "verify"})
	a.say(object{"op": "close"})
	return a.out.Bytes()
}

type object = map[string]any

// author writes a script.
type author struct {
	*rand.Rand
	out bytes.Buffer
}

func (a *author) say(request object) {
	line, err := json.Marshal(request)
	if err != nil {
		panic(err) // made of numbers and strings
	}
	a.out.Write(append(line, '\n'))
}

func (a *author) oneIn(n int) bool { return a.IntN(n) == 0 }

func (a *author) open() {
	cache := object{"tokens_per_block": 4, "event_buffer_max_size": 1000}
	layers := 1 + a.IntN(3)
	if layers > 1 {
		cache["max_attention_window"] = [][]int{{64, 8}, {8, 12}, {64, 6, 8}}[a.IntN(3)]
		if a.oneIn(3) {
			cache["sink_token_length"] = 1 + a.IntN(6)
		}
	}
	for _, f := range []struct {
		name string
		rare int
	}{{"enable_partial_reuse", 8}, {"copy_on_partial_reuse", 4}, {"enable_block_reuse", 20},
		{"onboard_blocks", 20}} {
		cache[f.name] = !a.oneIn(f.rare)
	}
	if a.oneIn(3) {
		cache["salt_quotas"] = object{"s": []float64{0.25, 0.5}[a.IntN(2)]}
		cache["other_salts_quota"] = []float64{0.5, 1}[a.IntN(2)]
	}
	pages := object{"primary": 8 + a.IntN(8), "secondary": 0}
	if cache["onboard_blocks"] == true {
		pages["secondary"] = a.IntN(8)
	}
	model := object{"layers": layers, "kv_heads": 1, "head_dim": 4, "max_seq_len": 64}
	if a.oneIn(3) {
		a.states(model, cache)
	}
	a.say(object{"op": "open", "model": model, "cache": cache, "pages": pages})
}

// states makes further layers of a model recurrent ones.
func (a *author) states(model, cache object) {
	layers := model["layers"].(int)
	heads := []int{}
	for range layers {
		heads = append(heads, 1)
	}
	model["layers"], model["kv_heads"] = layers+1, append(heads, 0)
	model["state"] = object{"layers": []int{layers}, "bytes": 24}
	cache["state_checkpoint_interval"] = []int{0, 0, 4, 8}[a.IntN(4)]
}

func (a *author) name() string { return string(rune('A' + a.IntN(5))) }

// tokens are one of three stems, cut somewhere, with something behind it.
func (a *author) tokens() []int {
	stem := 100 * (1 + a.IntN(3))
	var out []int
	for i := range 1 + a.IntN(22) {
		out = append(out, stem+i)
	}
	for range a.IntN(3) {
		out = append(out, a.IntN(3))
	}
	return out
}

// namespaced adds a salt, rarely.
func (a *author) namespaced(request object) object {
	if a.oneIn(8) {
		request["salt"] = "s"
	}
	if a.oneIn(8) {
		request["lora"] = "l"
	}
	return request
}

func (a *author) admission() object {
	r := a.namespaced(object{"seq": a.name(), "tokens": a.tokens()})
	switch a.IntN(12) {
	case 0:
		r["prefill"] = "manual"
	case 1:
		r["chunk_tokens"] = 4 * (1 + a.IntN(2))
	case 2:
		r["beam_width"] = 2
	case 3:
		r["retention"] = object{"ranges": []object{{"start": 0, "end": 1 + a.IntN(9),
			"priority": a.IntN(101), "duration_ms": 10 * (1 + a.IntN(5))}}}
	case 4:
		r["retention"] = object{"decode_priority": a.IntN(101)}
	}
	if a.oneIn(4) {
		r["session"] = string(rune('x' + a.IntN(2)))
	}
	return r
}

func (a *author) step() object {
	if a.oneIn(6) {
		return object{"seq": a.name(), "beams": []object{{"parent": a.IntN(2), "token": a.IntN(3)},
			{"parent": a.IntN(2), "token": a.IntN(3)}}}
	}
	tokens := []int{}
	for range 1 + a.IntN(4) {
		tokens = append(tokens, a.IntN(3))
	}
	return object{"seq": a.name(), "tokens": tokens}
}

func (a *author) several(one func() object) []object {
	out := []object{}
	for range 1 + a.IntN(3) {
		out = append(out, one())
	}
	return out
}

func (a *author) request() {
	switch a.IntN(24) {
	case 0, 1, 2, 3, 4:
		r := a.admission()
		r["op"] = "admit"
		a.say(r)
	case 5, 6:
		a.say(object{"op": "admit_batch", "requests": a.several(a.admission)})
	case 7, 8, 9, 10:
		a.say(object{"op": "append", "steps": a.several(a.step)})
	case 11, 12, 13, 14:
		a.say(object{"op": "release", "seq": a.name(), "store": !a.oneIn(6)})
	case 15:
		a.say(object{"op": "rewind", "seq": a.name(), "tokens": a.IntN(4)})
	case 16:
		a.say(object{"op": "fork", "seq": a.name(), "into": []string{a.name()}})
	case 17:
		a.say(object{"op": "commit", "seq": a.name(), "computed": a.IntN(25)})
	case 18:
		a.say(a.namespaced(object{"op": "prefetch", "tokens": a.tokens()}))
	case 19:
		a.pin()
	case 20:
		a.forget()
	case 21:
		a.say(object{"op": "advance", "ms": a.IntN(30)})
	case 22:
		a.say(object{"op": "tables", "seq": a.name()})
	default:
		a.say(a.namespaced(object{"op": "lookup", "tokens": a.tokens()}))
	}
}

func (a *author) pin() {
	pin := string(rune('p' + a.IntN(2)))
	if a.oneIn(2) {
		a.say(object{"op": "unpin", "pin": pin})
		return
	}
	a.say(a.namespaced(object{"op": "pin", "pin": pin, "tokens": a.tokens()}))
}

func (a *author) forget() {
	switch a.IntN(6) {
	case 0:
		a.say(object{"op": "invalidate", "session": "x"})
	case 1:
		a.say(object{"op": "invalidate", "salt": "s"})
	case 4:
		a.say(a.namespaced(object{"op": "invalidate", "lora": "l"}))
	case 5:
		if a.oneIn(3) {
			a.say(object{"op": "weights", "epoch": []string{"", "v1", "v2"}[a.IntN(3)]})
			return
		}
		a.say(object{"op": "reset", "running": a.oneIn(2)})
	case 2:
		a.say(a.namespaced(object{"op": "invalidate", "tokens": a.tokens()}))
	default:
		if a.oneIn(3) {
			a.say(object{"op": "reset"})
		}
	}
}
