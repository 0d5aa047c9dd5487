package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/messages"
)

// The tokens of a block of demo chat, unless the user says so, and of a chunk of a prompt.
const (
	chatBlock = 16
	chatChunk = 64
)

// chatFlags are those of demo chat.
type chatFlags struct {
	model   string
	tokens  int
	compare bool
	config  runner.Config
	cache   cacheFlags
	store   storeFlag
}

func chatCommand() *cobra.Command {
	var f chatFlags
	c := &cobra.Command{
		Use:   "chat",
		Short: "Chat with a language model whose cache is the engine",
		Long: `chat reads what you say, a line at a time, and answers with a language model whose
keys and values lie in the engine's pages. Beside each answer it shows, on standard
error, how much of the prompt was cached and the time to the first token; with
--compare also the time without the cache.

Without --model it uses SmolLM2, if it is where demo model get smollm2 says, and else
a tiny model that comes with the program. That one knows little, but remembers what it
is told: My name is Anna. What is my name?`,
		Example: `  demo chat
  demo chat --model SmolLM2-135M-Instruct.Q4_1.gguf`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			f.store.notes = c.ErrOrStderr()
			f.config.Chunk = chatChunk
			if err := cmp.Or(
				atLeast("tokens", f.tokens, 1), atLeast("pages", f.config.Pages, 0),
				atLeast("host-pages", f.config.HostPages, 0), f.cache.read(c.Flags(), &f.config, chatBlock),
			); err != nil {
				return statusError{err, statusUsage}
			}
			talk, err := newTalk(c.Context(), &f)
			if err != nil {
				return statusError{err, statusUsage}
			}
			defer func() { err = errors.Join(err, talk.runner.Close(), talk.closeStore()) }()
			fmt.Fprintf(c.ErrOrStderr(), "[%s, %d parameters; /help tells what can be typed]\n", talk.name,
				talk.model.Parameters)
			return talk.run(c.Context(), c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&f.model, "model", "", modelHelp)
	c.Flags().IntVar(&f.tokens, "tokens", 256, "`tokens` of an answer, at most")
	c.Flags().BoolVar(&f.compare, "compare", false,
		"compute each prompt without the cache, too, to compare the times")
	c.Flags().IntVar(&f.config.Pages, "pages", 0,
		"device `pages`; 0: enough for two of the longest chats")
	c.Flags().IntVar(&f.config.HostPages, "host-pages", 256, "`pages` in host memory; 0: none")
	f.cache.add(c.Flags())
	f.store.add(c.Flags())
	return c
}

// talk is a chat with a model.
type talk struct {
	*language
	flags  *chatFlags
	runner *runner.Runner
	chat   []token.Message

	closeStore func() error
}

func newTalk(ctx context.Context, f *chatFlags) (*talk, error) {
	l, err := openLanguage(f.model)
	if err != nil {
		return nil, err
	}
	closeStore, err := f.store.attach(ctx, &f.config, l.files, l.path)
	if err != nil {
		return nil, err
	}
	r, err := runner.Open(l.model, f.config)
	return &talk{flags: f, language: l, runner: r, closeStore: closeStore}, err
}

// longestLine bounds a line of input, in bytes.
const longestLine = 1 << 20

// run answers line by line until the input ends, or a signal comes.
func (t *talk) run(ctx context.Context, in io.Reader, out, notes io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longestLine)
	for asks(in, notes) && lines.Scan() {
		switch said := strings.TrimSpace(lines.Text()); said {
		case "":
		case "/exit", "/quit":
			return nil
		case "/help":
			fmt.Fprintln(notes, "[say something; /exit, Ctrl-D or Ctrl-C ends the chat]")
		default:
			if err := t.say(ctx, said, out, notes); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(notes)
		return nil
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("a line has more than %d bytes", longestLine)
	default:
		return err
	}
}

// say answers one line. Where the chat is too long, or the cache too small for it, its oldest
// turns are forgotten; a line that is too long alone is refused, and the chat goes on.
func (t *talk) say(ctx context.Context, said string, out, notes io.Writer) error {
	t.chat = append(t.chat, token.Message{Role: "user", Text: said})
	room := min(t.flags.tokens, t.runner.Config.MaxLen/4) // for the answer
	for {
		prompt, err := t.words.Encode(t.form.Write(t.chat))
		if err != nil {
			return err
		}
		if len(prompt)+room <= t.runner.Config.MaxLen {
			text, note, err := t.answer(ctx, prompt, out)
			if err == nil {
				return t.told(ctx, prompt, text, note, notes)
			}
			if !errors.Is(err, messages.ErrOutOfPages) {
				return err
			}
		}
		if len(t.chat) == 1 {
			t.chat = nil
			fmt.Fprintf(notes,
				"[this line has %d tokens, too many for the cache or the model: it is left out]\n", len(prompt))
			return nil
		}
		t.chat = t.chat[2:]
		fmt.Fprintln(notes, "[the chat is too long: its oldest turn is forgotten]")
	}
}

// told keeps an answer and says what it took.
func (t *talk) told(
	ctx context.Context, prompt []messages.Token, text, note string, notes io.Writer,
) error {
	t.chat = append(t.chat, token.Message{Role: "assistant", Text: text})
	if t.flags.compare {
		alone, err := t.alone(ctx, prompt)
		if err != nil {
			return err
		}
		note += fmt.Sprintf("; without the cache the first token takes %s", report.Duration(alone))
	}
	fmt.Fprintf(notes, "[%s]\n", note)
	return nil
}

// asks prompts whoever types at a terminal. It is always true.
func asks(in io.Reader, notes io.Writer) bool {
	if u, ok := in.(*untilDone); ok && u.terminal() {
		fmt.Fprint(notes, "> ")
	}
	return true
}

// answer generates and prints an answer as it comes.
func (t *talk) answer(
	ctx context.Context, prompt []messages.Token, out io.Writer,
) (text, note string, err error) {
	begin := time.Now()
	s, err := t.runner.Admit(ctx, runner.Request{Tokens: prompt})
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, t.runner.Release(context.WithoutCancel(ctx), s)) }()
	if err := t.runner.Prefill(ctx, s); err != nil {
		return "", "", err
	}
	first := time.Since(begin)
	stops := t.form.Stops(t.words)
	var said []byte
	count, cut := 0, ""
	for ; count < t.flags.tokens && len(s.Tokens) < t.runner.Config.MaxLen; count++ {
		next := s.Next()
		if stops[next] {
			break
		}
		before := len(said)
		said = t.words.Append(said, next)
		if _, err := out.Write(said[before:]); err != nil {
			return "", "", err
		}
		if err := t.runner.Extend(ctx, s, next); errors.Is(err, messages.ErrOutOfPages) {
			cut = ", then the cache was full"
			break
		} else if err != nil {
			return "", "", err
		}
	}
	fmt.Fprintln(out)
	rate := float64(count) / (time.Since(begin) - first).Seconds()
	brought := ""
	if s.Onboarded > 0 {
		brought = fmt.Sprintf(" (%d pages copied from host memory)", s.Onboarded)
	}
	note = fmt.Sprintf("%d of %d prompt tokens cached%s; first token after %s, then %.0f tokens/s%s",
		s.Reused, len(prompt), brought, report.Duration(first), rate, cut)
	return strings.TrimSpace(string(said)), note, nil
}

// alone is the time that a prompt takes to its first token without the cache: in
// a namespace of its own, which is forgotten afterwards.
func (t *talk) alone(ctx context.Context, prompt []messages.Token) (time.Duration, error) {
	const salt = "alone"
	begin := time.Now()
	s, err := t.runner.Admit(ctx, runner.Request{Tokens: prompt, Salt: salt})
	if err != nil {
		return 0, err
	}
	err = t.runner.Prefill(ctx, s)
	took := time.Since(begin)
	err = errors.Join(err, t.runner.Release(context.WithoutCancel(ctx), s))
	if err == nil {
		_, err = t.runner.Engine.Invalidate(ctx, messages.Selector{Salt: salt})
	}
	return took, err
}
