package wire

import "encoding/binary"

// PackTokens packs tokens for a Prompt.
func PackTokens(tokens []int32) []byte {
	packed := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		packed = binary.LittleEndian.AppendUint32(packed, uint32(t))
	}
	return packed
}

// UnpackPages reads the page numbers of a pool.
func UnpackPages(packed []byte) []int32 {
	pages := make([]int32, len(packed)/4)
	for i := range pages {
		pages[i] = int32(binary.LittleEndian.Uint32(packed[4*i:]))
	}
	return pages
}
