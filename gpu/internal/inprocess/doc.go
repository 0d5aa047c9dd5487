// Package inprocess holds what devices share whose streams run in this process:
// gpu/sim and gpu/host. It checks batches and kernels before they are queued, finds
// pages in use, injects faults, and keeps the streams.
package inprocess
