// Package fleet replays requests through several engines, a router in front of them and
// one store behind them.
//
//	         requests                  events
//	source ──▶ router ──▶ engine 0 ──▶ index 0 ─┐
//	              ▲  └──▶ engine 1 ──▶ index 1 ─┤
//	              └─────────────────────────────┘
//	                      engines ◀──▶ store
//
// Each engine is a whole one, on a simulated device of its own, behind a server of
// package serve: it has real bytes, and every page that is reused is checked. A goroutine of its
// own runs it.
//
// # The router
//
// A router knows of an engine what the engine's events say, and nothing else: which blocks
// of a prompt the engine has. It sends a prompt to where the tokens that have to be
// computed before its first token are fewest: those of the prompt that are not cached
// there, and those of the prompts that were sent there before and have not been computed.
// So the longest match wins unless its engine is busy for longer than the match saves.
//
// # Time
//
// The fleet goes through time in windows. At the start of a window the router sends the
// requests that arrive in it, with indexes that are exact at that moment. Then all engines
// serve, side by side, up to the window's end, and the router is told what has been
// answered and follows the events. So a router is behind its engines by up to a window,
// as one in front of real engines is by the interval of their events.
//
// What a run counts is a function of its configuration: within a window engines share nothing. What
// they write to the store is seen at the window's end. Its times may differ by the microseconds of
// a copy.
//
// A page that comes from the store takes time: the engine's clock goes on by what the
// bytes of the modelled model would take on a link of Settings.StoreGbit. The engine is
// taken to do nothing else meanwhile, which is worse than it is.
//
// # Failure
//
// One engine can be killed in the middle. What it was serving is sent to others from the
// start; what it had not written to the store is lost.
package fleet
