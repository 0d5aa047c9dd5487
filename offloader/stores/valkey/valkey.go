// Package valkey is a store on a Valkey or Redis server, on one that Sentinel watches,
// or on a cluster. The calls of a batch are pipelined: one round trip a server.
//
//	valkey://user:password@host:6379/0?ttl=24h
//	valkeys://host:6379                                  with TLS
//	valkey://host:26379?master_set=main                  Sentinel
//	valkey://host1:6379?addr=host2:6379&addr=host3:6379  a cluster, found out by itself
//
// Beside the parameters of valkey-go's ParseURL a URL takes
//
//	ttl        how long an object stays after it was written (default: no limit)
//	prefix     what every key begins with (default "kv:")
//	single     1: the address is that of one server or of a proxy, which is not asked for
//	           the addresses of a cluster
//	ca         file with the certificates of the authorities to trust, in PEM
//	cert, key  files with the client's certificate and its key, in PEM
//	sentinel_username, sentinel_password
//	           of the Sentinels; the URL's user and password are those of the servers
//
// and refuses others. With TLS the certificate of a server has its host name. A server that the
// cluster or Sentinel names by an IP address may have the name in the URL instead.
//
// A server that is a cache has maxmemory-policy allkeys-lru or
// allkeys-lfu; objects that it evicts are misses.
package valkey

import (
	"context"
	"fmt"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/kvactor/kvactor/offloader/stores"
)

// Store is a stores.Store on one client of valkey-go.
type Store struct {
	client valkey.Client
	prefix string
	ttl    time.Duration // 0: no limit
}

var _ stores.Store = (*Store)(nil)

// Open connects to the servers that the URL names. The error of a URL that names none, such as
// one with an unknown parameter, wraps stores.ErrURL.
func Open(rawURL string) (*Store, error) {
	t, err := parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", stores.ErrURL, err)
	}
	if err := t.loadCertificates(); err != nil {
		return nil, err
	}
	s := &Store{prefix: t.prefix, ttl: t.ttl}
	if s.client, err = valkey.NewClient(t.option); err != nil {
		return nil, err
	}
	return s, nil
}

// do sends one command for each of n items, and calls read with each answer.
func (s *Store) do(
	ctx context.Context, n int, command func(i int) valkey.Completed,
	read func(i int, r valkey.ValkeyResult) error,
) error {
	if err := ctx.Err(); err != nil || n == 0 {
		return err
	}
	commands := make(valkey.Commands, n)
	for i := range commands {
		commands[i] = command(i)
	}
	errs := make([]error, n)
	for i, r := range s.client.DoMulti(ctx, commands...) {
		errs[i] = read(i, r)
	}
	return stores.Join(errs)
}

func (s *Store) key(k stores.Key) string { return s.prefix + string(k[:]) }

// Put implements stores.Store.
func (s *Store) Put(ctx context.Context, objects []stores.Object) error {
	if err := stores.CheckObjects(objects); err != nil {
		return err
	}
	return s.do(ctx, len(objects), func(i int) valkey.Completed {
		// The body is not copied. When the context ends, the client may still be sending
		// it: then Put returns an error, after which no caller writes to the body.
		set := s.client.B().Set().Key(s.key(objects[i].Key)).Value(valkey.BinaryString(objects[i].Body))
		if s.ttl > 0 {
			return set.Px(s.ttl).Build()
		}
		return set.Build()
	}, func(_ int, r valkey.ValkeyResult) error { return r.Error() })
}

// Get implements stores.Store.
func (s *Store) Get(ctx context.Context, keys []stores.Key, bodies [][]byte) error {
	clear(bodies)
	if err := stores.CheckKeys(keys, len(bodies)); err != nil {
		return err
	}
	return s.do(ctx, len(keys), func(i int) valkey.Completed {
		return s.client.B().Get().Key(s.key(keys[i])).Build()
	}, func(i int, r valkey.ValkeyResult) error {
		body, err := r.AsBytes()
		if valkey.IsValkeyNil(err) || err == nil && len(body) == 0 {
			return nil
		}
		if err == nil {
			bodies[i] = body
		}
		return err
	})
}

// Has implements stores.Store. A value that is empty or no string is no object.
func (s *Store) Has(ctx context.Context, keys []stores.Key, found []bool) error {
	clear(found)
	if err := stores.CheckKeys(keys, len(found)); err != nil {
		return err
	}
	return s.do(ctx, len(keys), func(i int) valkey.Completed {
		return s.client.B().Strlen().Key(s.key(keys[i])).Build()
	}, func(i int, r valkey.ValkeyResult) error {
		n, err := r.AsInt64()
		found[i] = err == nil && n > 0
		return err
	})
}

// Delete implements stores.Store. The server frees the memory of large objects in the
// background.
func (s *Store) Delete(ctx context.Context, keys []stores.Key) error {
	if err := stores.CheckKeys(keys, len(keys)); err != nil {
		return err
	}
	return s.do(ctx, len(keys), func(i int) valkey.Completed {
		return s.client.B().Unlink().Key(s.key(keys[i])).Build()
	}, func(_ int, r valkey.ValkeyResult) error { return r.Error() })
}

// Close implements stores.Store.
func (s *Store) Close() error {
	s.client.Close()
	return nil
}
