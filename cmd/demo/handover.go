package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/metrics/page"
)

// handoverFlags are those of demo handover.
type handoverFlags struct {
	model   string
	prompt  string
	tokens  int
	connect string
	listen  string
}

// handoverPrompt ends what is said to the model; sentences before it make the prompt long.
const handoverPrompt = "My name is Anna. What is my name?"

func handoverCommand() *cobra.Command {
	var f handoverFlags
	c := &cobra.Command{
		Use:   "handover",
		Short: "Compute a prompt in one process and decode the answer in another",
		Long: `handover computes a prompt, hands the sequence over TCP to a decode server, and
prints what that has generated. Without --connect it starts the decode server itself,
as a second process, on the loopback interface. It then generates the same answer in
one process: the tokens have to be the same.

The connection is not encrypted: keys, values and the prompt go over it as they are.`,
		Example: `  demo handover
  demo handover decode --listen 127.0.0.1:7070
  demo handover --connect 127.0.0.1:7070`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := atLeast("tokens", f.tokens, 1); err != nil {
				return statusError{err, statusUsage}
			}
			return handOver(c, &f)
		},
	}
	c.Flags().StringVar(&f.model, "model", tiny, modelHelp)
	c.Flags().StringVar(&f.prompt, "prompt", strings.Repeat("I like tea. ", 12)+handoverPrompt,
		"`text` that is said to the model")
	c.Flags().IntVar(&f.tokens, "tokens", 24, "`tokens` of the answer")
	c.Flags().StringVar(&f.connect, "connect", "", "`address` of a decode server; empty: start one")
	c.AddCommand(decodeCommand())
	return c
}

func decodeCommand() *cobra.Command {
	var f handoverFlags
	c := &cobra.Command{
		Use:   "decode",
		Short: "Decode sequences that other processes hand over",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return decodeServer(c, &f) },
	}
	c.Flags().StringVar(&f.model, "model", tiny, modelHelp)
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:0",
		"`address` to listen on, without a host on this machine only; "+
			"the first line of output is the address")
	return c
}

// handoverRunner opens a model for both ends, which must agree in the shape of the pools
// and not in their size.
func handoverRunner(model string, pages int) (*language, *runner.Runner, error) {
	l, err := openLanguage(model)
	if err != nil {
		return nil, nil, statusError{err, statusUsage}
	}
	r, err := runner.Open(l.model, runner.Config{TokensPerBlock: 16, Chunk: 64, Pages: pages})
	return l, r, err
}

// decoded is what the decode server answers behind a hand-over, as one line of JSON.
type decoded struct {
	Tokens      []messages.Token `json:"tokens"`
	FirstMicros int64            `json:"first_micros"` // from the last byte to the first token
}

// decodeRequest is what the source says before a hand-over.
type decodeRequest struct {
	Tokens int `json:"tokens"`
}

// decodeServer serves hand-overs one after the other until its context ends.
func decodeServer(c *cobra.Command, f *handoverFlags) (err error) {
	_, r, err := handoverRunner(f.model, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	listener, err := page.Listen(c.Context(), f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer context.AfterFunc(c.Context(), func() { _ = listener.Close() })()
	fmt.Fprintln(c.OutOrStdout(), listener.Addr())
	for {
		connection, err := listener.Accept()
		if err != nil {
			return c.Context().Err()
		}
		if err := decodeOne(c.Context(), r, connection); err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "demo: %s\n", oneLine(err))
		}
		_ = connection.Close()
	}
}

// The limits of what a connection of a decode server may take: to say its request, and for the
// sequence and its answer. Others wait meanwhile.
const (
	requestTime = 10 * time.Second
	answerTime  = 5 * time.Minute
)

// decodeOne receives one sequence and answers with its tokens.
func decodeOne(ctx context.Context, r *runner.Runner, connection net.Conn) error {
	var q decodeRequest
	if err := errors.Join(connection.SetDeadline(time.Now().Add(requestTime)),
		readLine(connection, &q), connection.SetDeadline(time.Time{})); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	s, _, err := r.Receive(ctx, connection)
	if err != nil {
		return err
	}
	begin := time.Now()
	var answer decoded
	defer func() { _ = r.Release(context.WithoutCancel(ctx), s) }()
	answer.Tokens = append(answer.Tokens, s.Tokens[s.Prompt:]...)
	for len(answer.Tokens) < q.Tokens && len(s.Tokens) < r.Config.MaxLen {
		if err := r.Step(ctx, s); err != nil {
			return err
		}
		if answer.FirstMicros == 0 {
			answer.FirstMicros = time.Since(begin).Microseconds()
		}
		answer.Tokens = append(answer.Tokens, s.Tokens[len(s.Tokens)-1])
	}
	return json.NewEncoder(connection).Encode(answer)
}

// readLine reads one line of JSON, and no byte behind it.
func readLine(r io.Reader, into any) error {
	var line []byte
	for b := make([]byte, 1); len(line) < 1<<16; line = append(line, b[0]) {
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		if b[0] == '\n' {
			return json.Unmarshal(line, into)
		}
	}
	return errors.New("a line of more than 64 KiB")
}

// handOver is the prefill server: it computes, hands over, and compares.
func handOver(c *cobra.Command, f *handoverFlags) (err error) {
	ctx := c.Context()
	l, r, err := handoverRunner(f.model, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	prompt, err := l.words.Encode(l.form.Write([]token.Message{{Role: "user", Text: f.prompt}}))
	if err != nil {
		return err
	}
	address := f.connect
	if address == "" {
		end, at, err := startDecoder(ctx, f.model)
		if err != nil {
			return err
		}
		defer end()
		address = at
	}
	s, err := r.Admit(ctx, runner.Request{Tokens: prompt})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Release(context.WithoutCancel(ctx), s)) }()
	if err := r.Prefill(ctx, s); err != nil {
		return err
	}
	if err := r.Sample(ctx, s); err != nil {
		return err
	}
	got, note, err := f.send(ctx, r, s, address)
	if err != nil {
		return err
	}
	// The same answer, in one process.
	alone := slices.Clone(s.Tokens[s.Prompt:])
	for len(alone) < f.tokens && len(s.Tokens) < r.Config.MaxLen {
		if err := r.Step(ctx, s); err != nil {
			return err
		}
		alone = append(alone, s.Tokens[len(s.Tokens)-1])
	}
	var said []byte
	stops := l.form.Stops(l.words)
	for _, t := range got[:slices.IndexFunc(append(slices.Clone(got), -1),
		func(t messages.Token) bool { return t < 0 || stops[t] })] {
		said = l.words.Append(said, t)
	}
	fmt.Fprintf(c.OutOrStdout(), "%s\n%s\n", said, note)
	if !slices.Equal(got, alone) {
		return fmt.Errorf("the decode server has generated %v, one process %v", got, alone)
	}
	fmt.Fprintf(c.OutOrStdout(), "The same %d tokens as in one process.\n", len(got))
	return nil
}

// send hands the sequence over and reads what was generated.
func (f *handoverFlags) send(
	ctx context.Context, r *runner.Runner, s *runner.Sequence, address string,
) ([]messages.Token, string, error) {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, "", err
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })()
	if err := json.NewEncoder(connection).Encode(decodeRequest{f.tokens}); err != nil {
		return nil, "", err
	}
	begin := time.Now()
	sent, err := r.Send(ctx, s, connection)
	if err != nil {
		return nil, "", err
	}
	took := time.Since(begin)
	var answer decoded
	if err := readLine(connection, &answer); err != nil {
		return nil, "", fmt.Errorf("the decode server: %w", err)
	}
	note := fmt.Sprintf(
		"%d tokens of the prompt: %d pages, %d bytes handed over in %s; first token decoded %s after "+
			"the last byte.",
		s.Prompt, sent.Pages, sent.Bytes, took.Round(10*time.Microsecond),
		(time.Duration(answer.FirstMicros) * time.Microsecond).Round(10*time.Microsecond))
	return answer.Tokens, note, nil
}

// startDecoder starts a decode server as a process of its own. end ends it.
func startDecoder(ctx context.Context, model string) (end func(), address string, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	c := exec.CommandContext(ctx, program, "handover", "decode", "--model", model)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := c.Start(); err != nil {
		return nil, "", err
	}
	end = func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return nil, "", fmt.Errorf("the decode server has not started: %w", err)
	}
	return end, strings.TrimSpace(line), nil
}
