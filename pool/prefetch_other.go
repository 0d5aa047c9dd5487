//go:build !amd64 && !arm64

package pool

// fetch fetches the records of pages into the processor's caches, by reading them.
func (c *cache) fetch(numbers []int32) {
	touched := int32(0)
	for _, i := range numbers {
		touched += c.pages[i].depth
	}
	c.touched = touched
}
