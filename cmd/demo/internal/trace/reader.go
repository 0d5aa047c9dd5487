package trace

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Request is one request of a trace.
type Request struct {
	Line         int           // in the file, from 1
	Arrival      time.Duration // from the start of the trace; never goes back
	PromptTokens int           // may be 0: some published lines state no prompt
	AnswerTokens int
	// Blocks are the identities of the prompt's blocks, numbered by first
	// appearance in the file. The slice is valid until the next request is read.
	Blocks []int32
}

// Sizes of the reader.
const (
	lookahead = 4 << 20  // bytes read ahead to derive the block size
	maxLine   = 64 << 20 // bytes of the longest line; Mooncake's are below 10 KiB
)

// Reader reads a trace request by request.
type Reader struct {
	name   string
	file   io.Closer
	in     *bufio.Reader
	line   int // of the line read last
	served int // requests given out
	long   []byte
	record record
	next   Request

	blockTokens int
	numbers     map[int64]int32
	before      []int32 // by number: the number of the predecessor, −1: none
	identities  []int64 // by number
}

// Open opens a trace file and derives its block size.
func Open(path string) (*Reader, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, pathError(path, err)
	}
	r, err := NewReader(path, file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	r.file = file
	return r, nil
}

// pathError says what is wrong with a path once, without the system call's name.
func pathError(path string, err error) error {
	var cause *os.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// NewReader reads a trace from in; errors call it name.
func NewReader(name string, in io.Reader) (*Reader, error) { return newReader(name, in, lookahead) }

// newReader looks ahead over the given bytes.
func newReader(name string, in io.Reader, lookahead int) (*Reader, error) {
	raw := bufio.NewReader(in)
	magic, err := raw.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, pathError(name, err)
	}
	r := &Reader{name: name, numbers: map[int64]int32{}}
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		plain, err := gzip.NewReader(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, compressed(err))
		}
		r.in = bufio.NewReaderSize(plain, lookahead)
	} else {
		r.in = bufio.NewReaderSize(raw, lookahead)
	}
	if err := r.derive(lookahead); err != nil {
		return nil, err
	}
	return r, nil
}

// TokensPerBlock is the block size that the file's lengths imply.
func (r *Reader) TokensPerBlock() int { return r.blockTokens }

// Distinct is how many different identities have been read.
func (r *Reader) Distinct() int { return len(r.before) }

// Close closes the file.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// derive looks ahead to find the block size. A line that cannot be read is
// left for Next to report, in its turn.
func (r *Reader) derive(lookahead int) error {
	ahead, err := r.in.Peek(lookahead)
	if err != nil && !errors.Is(err, io.EOF) && len(ahead) == 0 {
		return fmt.Errorf("%s:1: %w", r.name, compressed(err))
	}
	if bytes.HasPrefix(ahead, []byte("TIMESTAMP,")) {
		return fmt.Errorf(
			"%s: this CSV trace has no block identities, so nothing in it can be found again", r.name)
	}
	var limits bounds
	var scan record
	for len(ahead) > 0 {
		end := bytes.IndexByte(ahead, '\n')
		if end < 0 {
			if err == nil {
				break // cut off by the look-ahead
			}
			end = len(ahead) - 1
		}
		line := bytes.TrimSpace(ahead[:end+1])
		ahead = ahead[end+1:]
		if len(line) == 0 {
			continue
		}
		if scan.decode(line) != nil {
			break
		}
		n, bad := scan.count()
		if bad != nil || n > scan.InputLength {
			break
		}
		limits.add(scan.InputLength, n, scan.IDs != nil)
	}
	r.blockTokens = limits.tokens()
	if r.blockTokens == 0 {
		return fmt.Errorf("%s: the prompts have too many blocks for blocks of two tokens", r.name)
	}
	return nil
}

// Next reads a request. The answer is valid until the next call; io.EOF ends
// the trace. Any other error states file and line.
func (r *Reader) Next() (*Request, error) {
	for {
		line, err := r.readLine()
		if errors.Is(err, io.EOF) && r.served == 0 {
			return nil, fmt.Errorf("%s: holds no requests", r.name)
		}
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", r.name, r.line+1, compressed(err))
		}
		r.line++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := r.parse(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", r.name, r.line, err)
		}
		r.served++
		return &r.next, nil
	}
}

// readLine reads a line of any length up to maxLine; the last may lack its end.
func (r *Reader) readLine() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if err == nil {
		return line, nil
	}
	r.long = append(r.long[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(r.long) > maxLine {
			return nil, fmt.Errorf("the line is longer than %d MiB", maxLine>>20)
		}
		line, err = r.in.ReadSlice('\n')
		r.long = append(r.long, line...)
	}
	if errors.Is(err, io.EOF) && len(r.long) > 0 {
		return r.long, nil
	}
	return r.long, err
}

// compressed words the errors of a damaged gzip stream.
func compressed(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.As(err, &corrupt):
		return errors.New("the gzip stream is damaged")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("the gzip stream ends too early, the file is cut off")
	case errors.Is(err, gzip.ErrChecksum):
		return errors.New("the gzip stream is damaged: its checksum is wrong")
	case errors.Is(err, gzip.ErrHeader):
		return errors.New("the gzip stream is damaged: its header is wrong")
	}
	return err
}

func (r *Reader) parse(line []byte) error {
	if err := r.record.decode(line); err != nil {
		return err
	}
	n, err := r.record.count()
	if err != nil {
		return err
	}
	if !r.record.fits(n, r.blockTokens) {
		return fmt.Errorf("%d blocks of %d tokens are more than a prompt of %d tokens has",
			n, r.blockTokens, r.record.InputLength)
	}
	r.next.Line = r.line
	r.next.Arrival = max(r.next.Arrival, time.Duration(r.record.Timestamp*float64(time.Millisecond)))
	r.next.PromptTokens = int(r.record.InputLength)
	r.next.AnswerTokens = int(r.record.OutputLength)
	r.next.Blocks = r.next.Blocks[:0]
	for _, id := range r.record.IDs {
		if err := r.take(id); err != nil {
			return err
		}
	}
	for _, run := range r.record.Runs {
		for id := run[0]; id < run[0]+run[1]; id++ {
			if err := r.take(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// take appends the number of an identity to the request's blocks, after
// checking that it stands behind the same block as ever.
func (r *Reader) take(id int64) error {
	if id < 0 {
		return fmt.Errorf("block %d is negative", id)
	}
	previous := int32(-1)
	if n := len(r.next.Blocks); n > 0 {
		previous = r.next.Blocks[n-1]
	}
	number, known := r.numbers[id]
	if !known {
		number = int32(len(r.before))
		r.numbers[id] = number
		r.before = append(r.before, previous)
		r.identities = append(r.identities, id)
	} else if r.before[number] != previous {
		return fmt.Errorf("block %d comes behind %s, but came behind %s before",
			id, r.named(previous), r.named(r.before[number]))
	}
	r.next.Blocks = append(r.next.Blocks, number)
	return nil
}

func (r *Reader) named(number int32) string {
	if number < 0 {
		return "nothing"
	}
	return fmt.Sprintf("block %d", r.identities[number])
}
