package page

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Serve serves a handler at an address until the returned function is called, with
// limits on what requests may take. An address without a host is on the loopback
// interface; there, requests must name that interface or localhost as their host, so that
// no page of the web can read the answers under a name of its own.
func Serve(address string, h http.Handler) (at net.Addr, stop func(), err error) {
	l, err := Listen(context.Background(), address)
	if err != nil {
		return nil, nil, err
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		h = Local(h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: timeout, ReadTimeout: timeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: 1 << 14,
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with the listener
	}()
	return l.Addr(), func() {
		cancel() // ends the streams, which Shutdown would wait for
		_ = s.Close()
		<-done
	}, nil
}

// Listen listens at an address. One without a host, such as :8080, is on the loopback
// interface, and not on all of them as for package net. Connections beyond the 1,024th
// are closed.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	return &boundedListener{l, make(chan struct{}, maxConnections)}, nil
}

// Local refuses requests whose host is neither localhost nor a loopback address.
func Local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "the host is not this machine", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}
