package valkey

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

// DefaultPrefix is what keys begin with unless the URL has a prefix.
const DefaultPrefix = "kv:"

// defaultPort is that of a server whose address has none.
const defaultPort = "6379"

// writeTimeout is how long a server may leave a command unanswered that has no earlier
// deadline, before its connection is given up.
const writeTimeout = 10 * time.Second

// Parameters of a URL: those of this package, and those that valkey-go reads. It ignores all
// others, so a misspelt one would do nothing.
var (
	ours = []string{"ttl", "prefix", "single", "ca", "cert", "key", "sentinel_username",
		"sentinel_password"}
	theirs = []string{
		"db", "dial_timeout", "write_timeout", "addr", "skip_verify", "protocol", "client_cache",
		"max_retries",
		"client_name", "master_set",
	}
)

// errUser is the error of a URL with a user and something that url.Parse refuses.
var errUser = errors.New(
	"wrong, or with a user or password whose special characters are not escaped")

// target is what a URL says.
type target struct {
	option        valkey.ClientOption
	prefix        string
	ttl           time.Duration // 0: no limit
	ca, cert, key string        // files, "": none
}

// parse reads a URL. It opens no file and no connection. Its errors do not have the URL, which
// may have a password.
func parse(rawURL string) (*target, error) {
	u, err := url.Parse(rawURL)
	if strings.Contains(rawURL, "@") && (err != nil || u.User == nil) {
		return nil, errUser // a part of the password may be where url.Parse found a mistake
	}
	if err != nil {
		return nil, withoutURL(err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, withoutURL(err)
	}
	for name := range query {
		if !slices.Contains(ours, name) && !slices.Contains(theirs, name) {
			return nil, fmt.Errorf("unknown parameter %q", name)
		}
	}
	t := &target{prefix: DefaultPrefix, ca: query.Get("ca"), cert: query.Get("cert"),
		key: query.Get("key")}
	if text := query.Get("ttl"); text != "" {
		if t.ttl, err = time.ParseDuration(text); err != nil || t.ttl < time.Millisecond {
			return nil, fmt.Errorf("ttl %q is not a duration of 1ms or more", text)
		}
	}
	if query.Has("prefix") {
		t.prefix = query.Get("prefix")
	}
	rest := url.Values{}
	for _, name := range theirs {
		if query.Has(name) {
			rest[name] = query[name]
		}
	}
	for i, address := range rest["addr"] {
		// valkey-go takes an address without a port for the URL's host.
		if _, _, err := net.SplitHostPort(address); err != nil {
			rest["addr"][i] = net.JoinHostPort(strings.Trim(address, "[]"), defaultPort)
		}
	}
	u.RawQuery = rest.Encode()
	if t.option, err = valkey.ParseURL(u.String()); err != nil {
		return nil, withoutURL(err)
	}
	return t, t.complete(query)
}

// complete sets what valkey-go's ParseURL leaves open.
func (t *target) complete(query url.Values) error {
	o := &t.option
	o.ForceSingleClient = query.Get("single") == "1"
	o.DisableCache = true // objects are read once and kept by the engine
	o.DisableRetry = true // the engine asks again when it wants to
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = writeTimeout
	}
	o.Sentinel.Username, o.Sentinel.Password = query.Get("sentinel_username"),
		query.Get("sentinel_password")
	o.Sentinel.Dialer, o.Sentinel.TLSConfig = o.Dialer, o.TLSConfig
	if o.TLSConfig == nil {
		if t.ca+t.cert+t.key != "" {
			return errors.New("ca, cert and key are of TLS: the scheme is valkeys or rediss")
		}
		return nil
	}
	if (t.cert == "") != (t.key == "") {
		return errors.New("cert and key go together")
	}
	o.DialCtxFn = dialTLS
	return nil
}

// dialTLS connects to one server. valkey-go would ask all servers for the name in the URL,
// which the others of a cluster and those behind Sentinel do not have.
func dialTLS(
	ctx context.Context, address string, dialer *net.Dialer, config *tls.Config,
) (net.Conn, error) {
	if host, _, err := net.SplitHostPort(address); err == nil && net.ParseIP(host) == nil {
		config = config.Clone()
		config.ServerName = host
	}
	return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", address)
}

// loadCertificates reads the files that the URL names.
func (t *target) loadCertificates() error {
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return err
		}
		t.option.TLSConfig.RootCAs = x509.NewCertPool()
		if !t.option.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s has no certificate", t.ca)
		}
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return err
		}
		t.option.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// withoutURL removes the URL from an error about one: it may have a password.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
