//go:build amd64 || arm64

package pool

// prefetch asks the processor for the records of pages, of which it is given the first and
// the numbers, and waits for none of them. It is implemented in assembly, since Go has no
// such instruction: a read of a record would ask for it as well, but the processor then
// runs only some 250 instructions ahead until the record has come.
//
//go:noescape
func prefetch(first *page, numbers []int32)

// fetch fetches the records of pages into the processor's caches.
func (c *cache) fetch(numbers []int32) { prefetch(&c.pages[0], numbers) }
