package valkey_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/storetest"
	"github.com/kvactor/kvactor/offloader/stores/valkey"
)

func open(t *testing.T, url string) *valkey.Store {
	s, err := valkey.Open(url)
	require.NoError(t, err)
	return s
}

func TestMiniredis(t *testing.T) {
	server := miniredis.RunT(t)
	storetest.Run(t,
		func(t *testing.T) stores.Store { return open(t, "valkey://"+server.Addr()+"?ttl=1h") })
}

// TestServer runs on servers that the caller has started: KVACTOR_VALKEY has their
// URLs by kind, as in "KVACTOR_VALKEY_CLUSTER=valkey://localhost:7000".
func TestServer(t *testing.T) {
	for _, kind := range []string{"SINGLE", "SENTINEL", "CLUSTER", "TLS", "TLS_SENTINEL"} {
		t.Run(kind, func(t *testing.T) {
			url := os.Getenv("KVACTOR_VALKEY_" + kind)
			if url == "" {
				t.Skip("KVACTOR_VALKEY_" + kind + " names no server")
			}
			storetest.Run(t, func(t *testing.T) stores.Store { return open(t, url) })
		})
	}
}

func TestExpiryAndPrefix(t *testing.T) {
	server := miniredis.RunT(t)
	s := open(t, "redis://"+server.Addr()+"?ttl=10s&prefix=a:")
	defer s.Close()
	objects := storetest.Objects(t.Name(), 2, 10)
	require.NoError(t, s.Put(t.Context(), objects))
	assert.True(t, server.Exists("a:"+string(objects[0].Key[:])))

	server.FastForward(9 * time.Second)
	found := make([]bool, 2)
	require.NoError(t, s.Has(t.Context(), storetest.Keys(objects), found))
	assert.Equal(t, []bool{true, true}, found)
	server.FastForward(time.Second)
	require.NoError(t, s.Has(t.Context(), storetest.Keys(objects), found))
	assert.Equal(t, []bool{false, false}, found)
}

func TestAccess(t *testing.T) {
	server := miniredis.RunT(t)
	server.RequireUserAuth("kv", "secret")
	_, err := valkey.Open("valkey://kv:wrong@" + server.Addr())
	assert.Error(t, err)
	s := open(t, "valkey://kv:secret@"+server.Addr())
	assert.NoError(t, s.Put(t.Context(), storetest.Objects(t.Name(), 1, 1)))
	assert.NoError(t, s.Close())
}

func TestURLs(t *testing.T) {
	for _, url := range []string{"http://localhost", "valkey://localhost?ttl=soon",
		"valkey://localhost?ttl=0s", "://"} {
		_, err := valkey.Open(url)
		assert.Error(t, err, url)
	}
}

// A server that is gone fails calls; when it is back they succeed.
func TestServerComesBack(t *testing.T) {
	server := miniredis.RunT(t)
	s := open(t, "valkey://"+server.Addr())
	defer s.Close()
	objects := storetest.Objects(t.Name(), 2, 10)
	require.NoError(t, s.Put(t.Context(), objects))
	server.Close()
	bodies := make([][]byte, 2)
	require.Error(t, s.Get(t.Context(), storetest.Keys(objects), bodies))
	assert.Equal(t, [][]byte{nil, nil}, bodies)

	require.NoError(t, server.Restart())
	require.Eventually(t, func() bool {
		return s.Get(t.Context(), storetest.Keys(objects), bodies) == nil
	}, time.Minute, time.Millisecond)
	assert.Equal(t, objects[1].Body, bodies[1])
}

// A server that does not answer costs a call its deadline.
func TestServerHangs(t *testing.T) {
	server := miniredis.RunT(t)
	proxy := newProxy(t, server.Addr())
	s := open(t, "valkey://"+proxy.addr()+"?single=1")
	defer s.Close()
	objects := storetest.Objects(t.Name(), 2, 10)
	require.NoError(t, s.Put(t.Context(), objects))

	proxy.hang()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, s.Get(ctx, storetest.Keys(objects), make([][]byte, 2)), context.DeadlineExceeded)
}

// proxy passes bytes on to a server until it hangs: it then reads on and says nothing.
type proxy struct {
	listener net.Listener
	hung     chan struct{}
}

func newProxy(t *testing.T, server string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, hung: make(chan struct{})}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client, server)
		}
	}()
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }
func (p *proxy) hang()        { close(p.hung) }

func (p *proxy) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.pass(client, server)
	}()
	p.pass(server, client)
	server.Close()
	<-done
}

// pass copies from one connection to the other until either ends.
func (p *proxy) pass(to, from net.Conn) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		select {
		case <-p.hung:
		default:
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func ExampleOpen() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	store, err := valkey.Open("valkey://" + server.Addr() + "?ttl=24h")
	if err != nil {
		panic(err)
	}
	defer store.Close()
	ctx := context.Background()
	key := stores.Key{1}
	if err := store.Put(ctx, []stores.Object{{Key: key, Body: []byte("page")}}); err != nil {
		panic(err)
	}
	bodies := make([][]byte, 1)
	if err := store.Get(ctx, []stores.Key{key}, bodies); err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", bodies[0])
	// Output: page
}

// A value that is empty or no string is no object, and is replaced.
func TestRubbish(t *testing.T) {
	server := miniredis.RunT(t)
	s := open(t, "redis://"+server.Addr())
	defer s.Close()
	objects := storetest.Objects(t.Name(), 2, 10)
	keys, found := storetest.Keys(objects), make([]bool, 2)
	require.NoError(t, server.Set("kv:"+string(keys[0][:]), ""))
	_, err := server.Lpush("kv:"+string(keys[1][:]), "x")
	require.NoError(t, err)
	_ = s.Has(t.Context(), keys, found) // of the list it may say so
	assert.Equal(t, []bool{false, false}, found)
	require.NoError(t, s.Put(t.Context(), objects))
	require.NoError(t, s.Has(t.Context(), keys, found))
	assert.Equal(t, []bool{true, true}, found)
}
