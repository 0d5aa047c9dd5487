package valkey

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/storetest"
)

func TestParse(t *testing.T) {
	u, err := parse(
		"valkeys://kv:secret@a:7000/0?addr=b:7001&addr=c&ttl=24h&prefix=p:&ca=/ca.pem&dial_timeout=2s")
	require.NoError(t, err)
	assert.Equal(t, []string{"a:7000", "b:7001", "c:6379"}, u.option.InitAddress, "a cluster")
	assert.Equal(t, []string{"kv", "secret"}, []string{u.option.Username, u.option.Password})
	assert.Equal(t, 24*time.Hour, u.ttl)
	assert.Equal(t, "p:", u.prefix)
	assert.Equal(t, "/ca.pem", u.ca)
	assert.Equal(t, 2*time.Second, u.option.Dialer.Timeout)
	assert.False(t, u.option.ForceSingleClient)
	assert.Empty(t, u.option.Sentinel.MasterSet)

	u, err = parse(
		"rediss://kv:secret@a:26379?master_set=main&sentinel_username=s&sentinel_password=t&dial_timeout=2s")
	require.NoError(t, err)
	sentinel := u.option.Sentinel
	assert.Equal(t, []string{"main", "s", "t"}, []string{sentinel.MasterSet, sentinel.Username,
		sentinel.Password})
	assert.Same(t, u.option.TLSConfig, sentinel.TLSConfig, "the Sentinels have TLS, too")
	assert.Equal(t, 2*time.Second, sentinel.Dialer.Timeout)

	u, err = parse("valkey://a?single=1")
	require.NoError(t, err)
	assert.True(t, u.option.ForceSingleClient)
	assert.Nil(t, u.option.TLSConfig)
	assert.Equal(t, DefaultPrefix, u.prefix)
	assert.Zero(t, u.ttl)
}

// A URL that is refused may have a password: the error does not have it.
func TestParseRefuses(t *testing.T) {
	for url, says := range map[string]string{
		"http://u:secret@a":                      "invalid URL scheme",
		"://a":                                   "missing protocol scheme",
		"valkey://a:port":                        "invalid port",
		"valkey://u:secret@a:port":               "not escaped",
		"valkey://u:se/cret@a":                   "not escaped",
		"valkey://u:se?secret@a":                 "not escaped",
		"valkey://u:secret@a?ttl=soon":           `ttl "soon"`,
		"valkey://u:secret@a?ttl=0s":             `ttl "0s"`,
		"valkey://u:secret@a?ttl=1h;db=1":        "semicolon",
		"valkey://u:secret@a?tls=1":              `unknown parameter "tls"`,
		"valkey://u:secret@a/x":                  "database number",
		"valkey://u:secret@a?ca=/ca.pem":         "valkeys",
		"valkeys://u:secret@a?cert=/c.pem":       "cert and key",
		"valkeys://u:secret@a?skip_verify=maybe": "skip verify",
	} {
		_, err := parse(url)
		if assert.ErrorContains(t, err, says, url) {
			assert.NotContains(t, err.Error(), "secret")
		}
	}
	for _, file := range []string{"ca=/none", "cert=/none&key=/none"} {
		_, err := Open("valkeys://a?" + file)
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
}

// certificate makes files with a certificate for localhost that its own key has signed.
func certificate(t *testing.T) (certFile, keyFile string, pair tls.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"},
		IsCA:     true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	pair, err = tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	return certFile, keyFile, pair
}

// A server with TLS that wants a certificate of its clients and a user, all from the URL. The
// server is known by the name localhost, whichever address it is reached at.
func TestTLS(t *testing.T) {
	cert, key, pair := certificate(t)
	clients := x509.NewCertPool()
	clients.AddCert(pair.Leaf)
	server, err := miniredis.RunTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: clients, MinVersion: tls.VersionTLS12,
	})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	server.RequireUserAuth("kv", "secret")
	url := "valkeys://kv:secret@localhost:" + server.Port() + "?single=1"
	certified := url + "&ca=" + cert + "&cert=" + cert + "&key=" + key
	storetest.Run(t, func(t *testing.T) stores.Store {
		s, err := Open(certified)
		require.NoError(t, err)
		return s
	})
	for wrong, says := range map[string]string{
		url:                 "unknown authority",
		url + "&ca=" + cert: "certificate",
		strings.Replace(certified, "secret", "wrong", 1):        "WRONGPASS",
		strings.Replace(certified, "localhost", "127.0.0.1", 1): "127.0.0.1",
		strings.Replace(certified, "valkeys", "valkey", 1):      "valkeys or rediss",
		strings.Replace(certified, "key="+key, "key="+cert, 1):  "private key",
	} {
		_, err := Open(wrong)
		assert.ErrorContains(t, err, says, wrong)
	}
}

// A server that is named by an IP address has the name in the URL, one that is named by a host
// its own.
func TestNamesOfServers(t *testing.T) {
	cert, _, pair := certificate(t)
	server, err := miniredis.RunTLS(&tls.Config{Certificates: []tls.Certificate{pair},
		MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	dial := func(urlHost, address string) error {
		u, err := parse("valkeys://" + urlHost + ":1?ca=" + cert)
		require.NoError(t, err)
		require.NoError(t, u.loadCertificates())
		conn, err := dialTLS(t.Context(), address+":"+server.Port(), &u.option.Dialer, u.option.TLSConfig)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	assert.NoError(t, dial("localhost", "127.0.0.1"))
	assert.NoError(t, dial("elsewhere", "localhost"))
	assert.ErrorContains(t, dial("elsewhere", "127.0.0.1"), "elsewhere")
}

// No URL makes parse panic, and no error tells a password.
func FuzzParse(f *testing.F) {
	for _, url := range []string{
		"valkey://user:password@host:6379/0?ttl=24h",
		"valkeys://host:6379?ca=/a&cert=/b&key=/c&skip_verify=1", "redis://[::1]:1?prefix=",
		"rediss://host:26379?master_set=main&sentinel_username=a&sentinel_password=b",
		"unix:///run/a.sock?db=1&single=1",
		"valkey://a?addr=b:1&addr=c&dial_timeout=1s&write_timeout=1s&protocol=2", "://",
		"valkey://a:b@c/%zz?ttl=%",
	} {
		f.Add(url)
	}
	const password = "pa55w0rd.of.the.url"
	f.Fuzz(func(t *testing.T, url string) {
		u, err := parse(url)
		if err == nil {
			if u.ttl != 0 && u.ttl < time.Millisecond {
				t.Errorf("%q: ttl %v", url, u.ttl)
			}
			if len(u.option.InitAddress) == 0 {
				t.Errorf("%q: no server", url)
			}
			if (u.option.TLSConfig == nil) != (u.option.Sentinel.TLSConfig == nil) {
				t.Errorf("%q: servers and Sentinels differ in TLS", url)
			}
		}
		scheme, rest, ok := strings.Cut(url, "://")
		if !ok || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz") != "" {
			return
		}
		if _, err := parse(scheme + "://u:" + password + "@" + rest); err != nil &&
			bytes.Contains([]byte(err.Error()), []byte(password)) {
			t.Errorf("%q: %v", url, err)
		}
	})
}
