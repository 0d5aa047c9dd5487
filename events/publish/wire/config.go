package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Config is what vLLM's --kv-events-config says, with its names and, but for the
// endpoint, its defaults: vLLM listens on all interfaces, kvactor on the loopback
// interface.
// Fields that the JSON does not have keep the values of Default.
type Config struct {
	Enable bool `json:"enable_kv_cache_events"`
	// Publisher null opens no socket: the HTTP handlers serve all the same.
	Publisher      string `json:"publisher"`       // zmq or null; "": zmq
	Endpoint       string `json:"endpoint"`        // of the batches; the rank is added to the port
	ReplayEndpoint string `json:"replay_endpoint"` // "": none
	// Batches are what a poll has found; at the default interval of 20 ms the log keeps 200 s
	// of a busy engine, and longer of an idle one, which publishes none.
	BufferSteps int `json:"buffer_steps"` // batches that the log keeps
	HWM         int `json:"hwm"`          // batches that wait for one subscriber
	// accepted for vLLM's sake: nothing queues before the log
	MaxQueueSize int    `json:"max_queue_size"`
	Topic        string `json:"topic"`
	// The topic is the first frame of a message. A SUB socket takes those that begin with what
	// it has subscribed to; llm-d reads the pod and the model from it.
	// Bind says to listen at the endpoint, or to connect to it. Without it vLLM's rule
	// decides: addresses with * or ::, and ipc, are listened at, and so is the loopback
	// interface here.
	Bind *bool `json:"bind"`
	// SnapshotOnSubscribe sends all blocks to each new subscriber, behind an
	// AllBlocksCleared, under the latest sequence. It is for readers that ask for no
	// replay; those that do would take it for a batch that they have had.
	SnapshotOnSubscribe bool `json:"snapshot_on_subscribe"`
	// Format is vllm or aibrix; "": vllm.
	Format string `json:"format"`
}

// Default returns the default configuration. It is not enabled.
// The endpoint differs from vLLM's, which has tcp://*:5557.
func Default() Config {
	return Config{Endpoint: "tcp://127.0.0.1:5557", BufferSteps: 10_000, HWM: 100_000,
		MaxQueueSize: 100_000}
}

// ParseConfig reads a configuration in JSON; what it does not say is as in Default.
func ParseConfig(text []byte) (Config, error) {
	c := Default()
	d := json.NewDecoder(bytes.NewReader(text))
	// A name of vLLM's that is not served here must not be ignored silently.
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, refusals.New(messages.ErrConfigInvalid, "kv_events_config: %v", err)
	}
	// JSON behind the first value would be ignored, too.
	if d.More() {
		return c, refusals.New(messages.ErrConfigInvalid, "kv_events_config: more than one value")
	}
	return c, c.Validate()
}

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	switch {
	case c.Publisher != "" && c.Publisher != "zmq" && c.Publisher != "null":
		return refusals.New(messages.ErrConfigInvalid,
			"kv_events_config: publisher %q is not zmq or null", c.Publisher)
	case c.Format != "" && c.Format != "vllm" && c.Format != "aibrix":
		return refusals.New(messages.ErrConfigInvalid,
			"kv_events_config: format %q is not vllm or aibrix", c.Format)
	// ZeroMQ reads a mark of 0 as no limit. Here every queue has one.
	case c.BufferSteps < 1 || c.HWM < 1 || c.MaxQueueSize < 0:
		return refusals.New(messages.ErrConfigInvalid,
			"kv_events_config: buffer_steps %d, hwm %d, max_queue_size %d", c.BufferSteps, c.HWM,
			c.MaxQueueSize)
	}
	for _, e := range []string{c.Endpoint, c.ReplayEndpoint} {
		if e == "" {
			continue
		}
		// With rank 0: a port that only a higher rank would push over 65535 is found by Start.
		if _, err := parseEndpoint(e, 0, c.Bind); err != nil {
			return refusals.New(messages.ErrConfigInvalid, "kv_events_config: %v", err)
		}
	}
	return nil
}

// endpoint is an address of ZeroMQ.
type endpoint struct {
	// network is tcp or unix; the address of a unix socket is a path.
	network, address string // for package net
	bind             bool
}

// parseEndpoint reads tcp://host:port and ipc://path, and adds the rank to the port.
// Port 0, which is for the system to choose, stays.
// The reader of a port that the system has chosen learns it from ServerInfo.
func parseEndpoint(text string, rank int, bind *bool) (endpoint, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	var e endpoint
	switch scheme {
	case "ipc":
		e = endpoint{"unix", rest, true}
		// vLLM names the ranks of its inproc endpoints like this.
		if rank > 0 {
			e.address += fmt.Sprintf("_dp%d", rank)
		}
	case "tcp":
		host, port, err := net.SplitHostPort(rest)
		if err != nil {
			return e, fmt.Errorf("endpoint %q: %w", text, err)
		}
		// A name of a service, such as http, is no port here: the rank could not be added to it.
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n+uint64(rank) > 65535 {
			return e, fmt.Errorf("endpoint %q with rank %d: the port is not from 0 to 65535", text, rank)
		}
		if n > 0 {
			n += uint64(rank)
		}
		e = endpoint{network: "tcp", bind: host == "*" || strings.Contains(host, "::") ||
			isLoopback(host)}
		// Package net listens on all interfaces, of both families, without a host.
		if host == "*" {
			host = ""
		}
		e.address = net.JoinHostPort(host, strconv.FormatUint(n, 10))
	default:
		return e, fmt.Errorf("endpoint %q is not tcp:// or ipc://", text)
	}
	if e.address == "" {
		return e, fmt.Errorf("endpoint %q has no address", text)
	}
	if bind != nil {
		e.bind = *bind
	}
	return e, nil
}

func isLoopback(host string) bool {
	// No name is looked up: localhost is the only one that counts.
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
