// Package inprocess holds what devices share: the checks of batches and kernels before they
// are queued, and, for devices whose streams run in this process (gpu/sim and gpu/host), the
// streams, the search for pages in use, and injected faults.
package inprocess
