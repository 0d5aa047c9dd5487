package report

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// every is how often a line is printed where no bar can be drawn.
const every = 3 * time.Second

// Progress shows how far a command is. It belongs to one goroutine.
type Progress struct {
	w     io.Writer
	label string
	total int // −1: unknown
	bar   *progressbar.ProgressBar
	start time.Time
	last  time.Time
	now   func() time.Time
}

// NewProgress shows progress towards total, −1 if that is not known: a bar if w
// is a terminal, else a line now and then.
func NewProgress(w io.Writer, label string, total int) *Progress {
	p := &Progress{w: w, label: label, total: total, now: time.Now}
	p.start = p.now()
	p.last = p.start
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(w),
			progressbar.OptionSetDescription(label),
			progressbar.OptionShowCount(),
			progressbar.OptionShowIts(),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionFullWidth(),
		)
	}
	return p
}

// Set shows that n are done; note says more. Errors of the terminal are no one's
// concern: progress is no result.
func (p *Progress) Set(n int, note string) {
	now := p.now()
	if p.bar != nil {
		if now.Sub(p.last) >= 100*time.Millisecond {
			p.last = now
			p.bar.Describe(p.label + " " + note)
		}
		_ = p.bar.Set(n)
		return
	}
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	p.line(n, note)
}

func (p *Progress) line(n int, note string) {
	of := ""
	if p.total >= 0 {
		of = fmt.Sprintf(" of %d", p.total)
	}
	if note != "" {
		note = ", " + note
	}
	fmt.Fprintf(p.w, "%s: %d%s requests%s, %.0f s\n", p.label, n, of, note,
		p.now().Sub(p.start).Seconds())
}

// Done ends the bar, or prints a last line.
func (p *Progress) Done(n int, note string) {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
	p.line(n, note)
}
