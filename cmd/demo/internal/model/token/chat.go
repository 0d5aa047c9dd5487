package token

import (
	"errors"
	"regexp"
	"strings"

	"github.com/kvactor/kvactor/messages"
)

// Message is one message of a chat. Roles are system, user and assistant.
type Message struct{ Role, Text string }

// Form is how a family of models writes chats.
type Form struct {
	name   string
	system string // what is said when a chat has no system message; "": nothing
	stops  []string
}

// marks tell which form a template is, the first that it contains.
var marks = []struct {
	text string
	form Form
}{
	{"<|im_start|>", Form{name: "chatml", stops: []string{"<|im_end|>"}}},
	{"<|start_header_id|>", Form{name: "llama3", stops: []string{"<|eot_id|>", "<|end_of_text|>"}}},
	{"<start_of_turn>", Form{name: "gemma", stops: []string{"<end_of_turn>"}}},
	{"[INST]", Form{name: "mistral", stops: []string{"</s>"}}},
}

// defaultSystem finds the system message that a ChatML template has for chats
// without one.
var defaultSystem = regexp.MustCompile(`<\|im_start\|>system(?:\n|\\n)([^{}<>]*)<\|im_end\|>`)

// FormOf finds out which form a model's template is.
func FormOf(template string) (Form, error) {
	for _, m := range marks {
		if strings.Contains(template, m.text) {
			f := m.form
			if found := defaultSystem.FindStringSubmatch(template); found != nil && f.name == "chatml" {
				f.system = found[1]
			}
			return f, nil
		}
	}
	return Form{}, errors.New("chat_template: it is none of chatml, llama3, gemma, mistral")
}

// String is the name of the form.
func (f Form) String() string { return f.name }

// Stops are the tokens that end an answer.
func (f Form) Stops(t *Tokenizer) map[messages.Token]bool {
	out := map[messages.Token]bool{}
	if t.EOS >= 0 {
		out[t.EOS] = true
	}
	for _, s := range f.stops {
		if id, ok := t.ids[s]; ok {
			out[id] = true
		}
	}
	return out
}

// Write writes a chat up to where the assistant answers.
func (f Form) Write(chat []Message) string {
	var b strings.Builder
	system := f.system
	if len(chat) > 0 && chat[0].Role == "system" {
		system, chat = chat[0].Text, chat[1:]
	}
	switch f.name {
	case "chatml":
		if system != "" {
			b.WriteString("<|im_start|>system\n" + system + "<|im_end|>\n")
		}
		for _, m := range chat {
			b.WriteString("<|im_start|>" + m.Role + "\n" + m.Text + "<|im_end|>\n")
		}
		b.WriteString("<|im_start|>assistant\n")
	case "llama3":
		if system != "" {
			b.WriteString("<|start_header_id|>system<|end_header_id|>\n\n" + strings.TrimSpace(system) +
				"<|eot_id|>")
		}
		for _, m := range chat {
			b.WriteString("<|start_header_id|>" + m.Role + "<|end_header_id|>\n\n" +
				strings.TrimSpace(m.Text) + "<|eot_id|>")
		}
		b.WriteString("<|start_header_id|>assistant<|end_header_id|>\n\n")
	default:
		f.writeTurns(&b, system, chat)
	}
	return b.String()
}

// writeTurns writes the forms in which the system message is part of the first
// user's.
func (f Form) writeTurns(b *strings.Builder, system string, chat []Message) {
	if system != "" {
		system += "\n\n"
	}
	for _, m := range chat {
		text := strings.TrimSpace(m.Text)
		if m.Role == "user" {
			text, system = system+text, ""
		}
		switch {
		case f.name == "gemma" && m.Role == "assistant":
			b.WriteString("<start_of_turn>model\n" + text + "<end_of_turn>\n")
		case f.name == "gemma":
			b.WriteString("<start_of_turn>" + m.Role + "\n" + text + "<end_of_turn>\n")
		case m.Role == "assistant":
			b.WriteString(" " + text + "</s>")
		default:
			b.WriteString("[INST] " + text + " [/INST]")
		}
	}
	if f.name == "gemma" {
		b.WriteString("<start_of_turn>model\n")
	}
}
