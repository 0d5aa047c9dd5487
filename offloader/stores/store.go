package stores

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
)

// Key is the key of an object.
type Key [32]byte

// String returns the key in hexadecimal digits.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Object is what a store keeps under a key.
type Object struct {
	Key  Key
	Body []byte
}

// Limits that every store keeps. A call beyond them fails as a whole.
const (
	// MaxBatch is the largest number of objects or keys in one call.
	MaxBatch = 1024
	// MaxBodyBytes is the length of the longest body: what Redis and Valkey accept
	// as one value.
	MaxBodyBytes = 512 << 20
)

// Store keeps objects by key. Its methods may be called from any number of goroutines.
//
// Every call is a batch of at most MaxBatch items and ends soon after its context has
// ended. Items succeed and fail one by one: a call that failed for some of its items
// only returns a *BatchError, any other error means that all of them failed.
//
// A store may forget an object at any time. A body is written as a whole or not at
// all: Get never returns a part of one. It may return an older body than the last that
// was put; readers verify each body, so that costs a miss at most.
type Store interface {
	// Put writes the objects, and replaces those that are there. An object that it fails to
	// write is missing or as it was before, never there in part. Put does not change the
	// bodies, and keeps none that it returns without an error for. After an error, that of
	// one object or of the context included, the store may still be reading bodies of the
	// call, and its caller never writes to any of them again.
	Put(ctx context.Context, objects []Object) error
	// Get sets bodies[i] to the body of keys[i], nil if the store has none or
	// could not read it. The bodies belong to the caller.
	Get(ctx context.Context, keys []Key, bodies [][]byte) error
	// Has sets found[i] if the store has a body of keys[i] that Get would return: an empty one
	// is none. It is false where the store could not say.
	Has(ctx context.Context, keys []Key, found []bool) error
	// Delete removes objects. One that is not there is removed already.
	Delete(ctx context.Context, keys []Key) error
	// Close gives back what the store holds of the process. The objects stay.
	Close() error
}

// BatchError says which items of a batch failed.
type BatchError struct {
	Errs []error // by item; nil: it succeeded
}

// Error returns the number of failures and the first of them.
func (e *BatchError) Error() string {
	n, first := 0, error(nil)
	for _, err := range e.Errs {
		if err == nil {
			continue
		}
		if n++; n == 1 {
			first = err
		}
	}
	return fmt.Sprintf("%d of %d objects: %v", n, len(e.Errs), first)
}

// Unwrap returns the failures.
func (e *BatchError) Unwrap() []error {
	var all []error
	for _, err := range e.Errs {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// Join returns the error of a batch whose items ended with errs: nil if all succeeded.
func Join(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return &BatchError{Errs: errs}
		}
	}
	return nil
}

// Failed returns the error of item i of a batch that returned err.
func Failed(err error, i int) error {
	var batch *BatchError
	if errors.As(err, &batch) && i < len(batch.Errs) {
		return batch.Errs[i]
	}
	return err
}

// CheckObjects refuses a batch to put that is beyond the limits. Stores call it first.
func CheckObjects(objects []Object) error {
	if err := checkCount(len(objects)); err != nil {
		return err
	}
	for i := range objects {
		if n := len(objects[i].Body); n == 0 || n > MaxBodyBytes {
			return fmt.Errorf("object %d has %d bytes, not 1 to %d", i, n, MaxBodyBytes)
		}
	}
	return nil
}

// CheckKeys refuses a batch of keys that is beyond the limits, or whose answers do not
// have one place for each key. Stores call it first.
func CheckKeys(keys []Key, answers int) error {
	if len(keys) != answers {
		return fmt.Errorf("%d keys with places for %d answers", len(keys), answers)
	}
	return checkCount(len(keys))
}

func checkCount(n int) error {
	if n > MaxBatch {
		return fmt.Errorf("batch of %d objects, at most %d", n, MaxBatch)
	}
	return nil
}
