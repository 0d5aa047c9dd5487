package published

import (
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/internal/heap"
)

// Check verifies that pages in queues are known, and the links between pages.
func (b *perBlock) Check() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i := range b.pages {
		r := &b.pages[i]
		if r.known && !b.core.Page(int32(i)).Stored {
			say("page %d has no contents, of which something is known", i)
		}
		if r.queue != nil && (!r.known || !b.core.Waits(int32(i))) {
			say("page %d is in a queue, known: %v", i, r.known)
		}
	}
	b.links.Check(b.core, say)
	return errors.Join(errs...)
}

// Draw draws what is known of a page.
func (b *perBlock) Draw(p int32) string {
	r := &b.pages[p]
	if !r.known {
		return ""
	}
	return fmt.Sprintf(" part %d rank %.4g uses %d", r.part, r.rank, r.uses)
}

// Check verifies the heaps of a queue, and how many pages they have.
func (q *blockQueue) Check(pages int) error {
	var errs []error
	if n := q.size(); n != pages {
		errs = append(errs, fmt.Errorf("%d pages are in the parts of a queue of %d", n, pages))
	}
	for part, h := range q.heaps {
		if i := heap.Misplaced(h, q); i >= 0 {
			errs = append(errs, fmt.Errorf("page %d of part %d is out of order", h[i], part))
		}
		for i, p := range h {
			r := &q.policy.pages[p]
			at := q.policy.core.Page(p).At
			if r.queue != q || int(r.part) != part || int(at) != i {
				errs = append(errs, fmt.Errorf(
					"page %d of part %d is in part %d at %d, and says %d", p, r.part, part, i, at))
			}
		}
	}
	return errors.Join(errs...)
}
