package attention

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Task is work that is divided into parts with no order between them. What a
// part computes must not depend on the worker that does it.
type Task interface {
	Do(worker, part int)
}

// Workers runs the parts of tasks on several goroutines. Between tasks they wait
// on a channel; a task costs no allocation. One task runs at a time, whichever
// goroutines ask. Close it after use.
type Workers struct {
	// mu makes tasks of several callers take turns. The fields below it belong to the task that
	// runs; helpers see them because Run wakes them by the channel.
	mu    sync.Mutex
	n     int
	wake  chan struct{}
	done  sync.WaitGroup
	task  Task
	parts int64
	next  atomic.Int64
	// failed is the first panic of a part, repeated by Run for its caller.
	failed atomic.Pointer[any]
}

// NewWorkers starts n−1 goroutines beside the callers; 0 takes one for each
// processor.
// They share the machine with whatever else runs; a worker that is delayed delays the end of
// a task by one part.
func NewWorkers(n int) *Workers {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	w := &Workers{n: n, wake: make(chan struct{}, n)}
	for i := 1; i < n; i++ {
		go func() {
			for range w.wake {
				w.work(i)
				w.done.Done()
			}
		}()
	}
	return w
}

// Count is the number of workers; Do gets a worker in [0, Count).
func (w *Workers) Count() int { return w.n }

// Run does all parts of a task and returns when they are done. A panic of a part
// is a panic of Run.
func (w *Workers) Run(t Task, parts int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.task, w.parts = t, int64(parts)
	w.next.Store(0)
	// The caller is worker 0 and does parts itself, so no helper is woken for a single part.
	helpers := min(w.n, parts) - 1
	for range helpers {
		w.done.Add(1)
		w.wake <- struct{}{}
	}
	w.work(0)
	w.done.Wait()
	w.task = nil
	if p := w.failed.Swap(nil); p != nil {
		panic(*p)
	}
}

// work does parts until none is left.
func (w *Workers) work(worker int) {
	defer func() {
		if p := recover(); p != nil {
			first := p // a copy: p itself would be allocated at every call
			w.failed.CompareAndSwap(nil, &first)
		}
	}()
	for {
		// Parts are taken one by one: workers that got short ones take more of them.
		part := w.next.Add(1) - 1
		if part >= w.parts {
			return
		}
		w.task.Do(worker, int(part))
	}
}

// Close ends the goroutines. No task may run, now or later.
// A Run after it would panic, as it sends on the closed channel.
func (w *Workers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.wake)
}
