// Package largepages makes large arrays whose addresses are cheap to translate.
//
// The array of a pool with ten million pages has 320 MB, in 80,000 memory pages of 4 KiB. A
// program that reads one element here and one there misses the processor's table of
// translated addresses each time, and the walk through the page tables costs about as much
// as the read. In memory pages of 2 MiB the same array is 160 pages, which fit into that
// table. Where the system has such pages on request only (transparent_hugepage is madvise,
// as most distributions have it), Make requests them; elsewhere it is make.
//
// No memory is used beyond that of the array: only the memory pages of 2 MiB that lie in it
// as a whole are requested. They are zeroed when they are first touched, 2 MiB at a time.
package largepages

import "unsafe"

// pageBytes is the size of a large page. Systems with another size ignore the request or
// round it.
const pageBytes = 2 << 20

// Make returns a slice of n zero elements with this capacity, which is at least n, in large
// memory pages if it is large enough to have any. Elements without pointers profit most: an
// array with pointers is scanned by the garbage collector as well.
func Make[E any](n, capacity int) []E {
	list := make([]E, n, capacity)
	var element E
	first := uintptr(unsafe.Pointer(unsafe.SliceData(list)))
	if from, to := within(first, uintptr(capacity)*unsafe.Sizeof(element)); from < to {
		// The difference of addresses is an offset in the array, so the collector keeps
		// track of the pointer.
		request(unsafe.Add(unsafe.Pointer(unsafe.SliceData(list)), from-first), to-from)
	}
	return list
}

// within returns the first and the last boundary of large pages in so many bytes of memory
// from first on. If there is no whole page between them, from is not below to.
func within(first, bytes uintptr) (from, to uintptr) {
	return (first + pageBytes - 1) &^ (pageBytes - 1), (first + bytes) &^ (pageBytes - 1)
}
