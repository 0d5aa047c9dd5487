// Package blob is a store on any bucket that gocloud.dev/blob opens: a local folder,
// S3, Google Cloud Storage, Azure, memory. The package imports no driver. A host
// imports those that it wants, one line each:
//
//	import _ "gocloud.dev/blob/fileblob" // file:///var/cache/kv
//	import _ "gocloud.dev/blob/s3blob"   // s3://bucket?region=eu-west-1
//
// An object is one blob, named by the two halves of its key in hexadecimal digits:
// "3f/9a…". A bucket has no expiry of its own; object stores have rules for it, and for
// a folder the age of the files says which may go.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"slices"
	"sync"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/kvactor/kvactor/offloader/stores"
)

// Concurrency is the default number of blobs that one call reads or writes at a time.
// A bucket over HTTP answers one request in tens of milliseconds, whatever its size, so
// batches need many of them; a folder gains nothing beyond a few.
const Concurrency = 16

// Options of a store.
type Options struct {
	Concurrency int // 0: Concurrency
}

// Store is a stores.Store on a bucket.
type Store struct {
	bucket      *blob.Bucket
	concurrency int
}

var _ stores.Store = (*Store)(nil)

// folderQuery has the parameters of a folder's URL that has none. The folder is made, and a file
// appears under its name when it is complete. There is no second file for its attributes, and no
// temporary file on what may be another file system, from which it could not be renamed.
const folderQuery = "create_dir=1&metadata=skip&no_tmp_dir=1"

// Open opens the bucket that a URL names. The driver of its scheme must be imported. A folder's
// URL needs no parameters: the folder is made if it is missing. The error of a URL that names no
// bucket wraps stores.ErrURL; that of a folder which cannot be opened does not.
func Open(ctx context.Context, rawURL string, o Options) (*Store, error) {
	rawURL, err := folder(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", stores.ErrURL, err)
	}
	bucket, err := blob.OpenBucket(ctx, rawURL)
	var outside *fs.PathError
	if err != nil && !errors.As(err, &outside) {
		return nil, fmt.Errorf("%w: %w", stores.ErrURL, err)
	}
	if err != nil {
		return nil, err
	}
	return New(bucket, o), nil
}

// folder gives the URL of a folder its parameters, and refuses one that names a host. The driver
// would ignore the host, and take file://a/b for the folder /b. Other URLs stay as they are.
func folder(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "file" {
		return rawURL, nil //nolint:nilerr // the bucket's Open says what is wrong with a URL
	}
	if !slices.Contains([]string{"", ".", "localhost"}, u.Host) {
		return "", fmt.Errorf("%q is a host: a folder is file:///%s%s or, from here on, file://./%s%s",
			u.Host, u.Host, u.Path, u.Host, u.Path)
	}
	if u.RawQuery == "" {
		u.RawQuery = folderQuery
	}
	return u.String(), nil
}

// New returns a store on a bucket, which Close closes.
func New(bucket *blob.Bucket, o Options) *Store {
	if o.Concurrency <= 0 {
		o.Concurrency = Concurrency
	}
	return &Store{bucket: bucket, concurrency: o.Concurrency}
}

// name returns the blob of a key. The first two digits are a folder of their own, so
// that no folder gets more than some thousand files.
func name(k stores.Key) string {
	s := k.String()
	return s[:2] + "/" + s[2:]
}

// each calls do for the items [0, n), several at a time.
func (s *Store) each(ctx context.Context, n int, do func(i int) error) error {
	errs := make([]error, n)
	limit := make(chan struct{}, s.concurrency)
	var wg sync.WaitGroup
	for i := range n {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = do(i)
			}
		})
	}
	wg.Wait()
	return stores.Join(errs)
}

// Put implements stores.Store. Two writers of one blob each write it as a whole.
func (s *Store) Put(ctx context.Context, objects []stores.Object) error {
	if err := stores.CheckObjects(objects); err != nil {
		return err
	}
	return s.each(ctx, len(objects), func(i int) error {
		return s.write(ctx, name(objects[i].Key), objects[i].Body)
	})
}

// write writes a blob as a whole or not at all. To close a writer puts the blob under its
// name, also after a failed Write, unless the writer's context has ended.
func (s *Store) write(ctx context.Context, name string, body []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := &blob.WriterOptions{
		ContentType: "application/octet-stream", DisableContentTypeDetection: true,
	}
	w, err := s.bucket.NewWriter(ctx, name, options)
	if err != nil {
		return err
	}
	if _, err := w.Write(body); err != nil {
		cancel()
		_ = w.Close() // the write has failed already
		return err
	}
	return w.Close()
}

// Get implements stores.Store.
func (s *Store) Get(ctx context.Context, keys []stores.Key, bodies [][]byte) error {
	clear(bodies)
	if err := stores.CheckKeys(keys, len(bodies)); err != nil {
		return err
	}
	return s.each(ctx, len(keys), func(i int) (err error) {
		bodies[i], err = s.read(ctx, name(keys[i]))
		return err
	})
}

// read returns a blob, nil if there is none.
func (s *Store) read(ctx context.Context, name string) ([]byte, error) {
	r, err := s.bucket.NewReader(ctx, name, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if !possible(r.Size()) {
		return nil, nil
	}
	body := make([]byte, r.Size())
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("blob %s: %w", name, err)
	}
	return body, nil
}

// Has implements stores.Store.
func (s *Store) Has(ctx context.Context, keys []stores.Key, found []bool) error {
	clear(found)
	if err := stores.CheckKeys(keys, len(found)); err != nil {
		return err
	}
	return s.each(ctx, len(keys), func(i int) error {
		a, err := s.bucket.Attributes(ctx, name(keys[i]))
		if gcerrors.Code(err) == gcerrors.NotFound {
			return nil
		}
		found[i] = err == nil && possible(a.Size)
		return err
	})
}

// possible tells whether a blob of a size can be an object. A file of length 0 is what a crash
// of the machine may leave of a new one.
func possible(size int64) bool { return size >= 1 && size <= stores.MaxBodyBytes }

// Delete implements stores.Store.
func (s *Store) Delete(ctx context.Context, keys []stores.Key) error {
	if err := stores.CheckKeys(keys, len(keys)); err != nil {
		return err
	}
	return s.each(ctx, len(keys), func(i int) error {
		err := s.bucket.Delete(ctx, name(keys[i]))
		if gcerrors.Code(err) == gcerrors.NotFound {
			return nil
		}
		return err
	})
}

// Close implements stores.Store.
func (s *Store) Close() error { return s.bucket.Close() }
