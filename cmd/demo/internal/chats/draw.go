package chats

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Chat is a system prompt and questions about it.
type Chat struct {
	System string
	Turns  []Turn
}

// Turn is a question with its right answer.
type Turn struct{ Question, Answer string }

// Plan says which chats are drawn.
type Plan struct {
	Chats  int
	Groups int // of chats that share a system prompt
	People int // in a system prompt
	Turns  int // of a chat
	Seed   uint64
}

// The words of the facts. All of them are in the chats that the built-in model was
// trained on.
var (
	names = strings.Fields(`Anna Ben Clara David Emma Felix Grace Hugo Iris Jonas Karin Leo Maria Nils
		Olga Paul Rosa Simon Tara Victor Wanda Yusuf Zoe Alice Bruno Dora Erik Fatima Gina Henry
		Ida Jack`)
	pets     = strings.Fields("cat dog horse parrot rabbit hamster turtle goat")
	petNames = strings.Fields(
		"Rex Bella Max Luna Oscar Daisy Rocky Molly Toby Ruby Buddy Coco Jasper Pepper Sunny Tiger")
	cities = strings.Fields(
		"Oslo Rome Paris Berlin Madrid London Vienna Lisbon Dublin Athens Warsaw Prague Tokyo " +
			"Cairo Lima Delhi")
	jobs = strings.Fields(
		"teacher doctor baker farmer pilot singer nurse painter cook driver lawyer writer")
)

// Draw makes the chats of a plan. The same plan gives the same chats.
func Draw(p Plan) []Chat {
	rng := rand.New(rand.NewPCG(p.Seed, 0)) //nolint:gosec // chats must be repeatable
	type group struct {
		system    string
		questions []Turn
	}
	groups := make([]group, p.Groups)
	for i := range groups {
		groups[i].system, groups[i].questions = people(rng, p.People)
	}
	out := make([]Chat, p.Chats)
	for i := range out {
		g := groups[rng.IntN(len(groups))]
		out[i].System = g.system
		for range p.Turns {
			out[i].Turns = append(out[i].Turns, g.questions[rng.IntN(len(g.questions))])
		}
	}
	return out
}

// people draws facts about people, and the questions about them.
func people(rng *rand.Rand, n int) (system string, questions []Turn) {
	lines := []string{"You answer questions about these people."}
	for _, i := range rng.Perm(len(names))[:n] {
		draw := func(words []string) string { return words[rng.IntN(len(words))] }
		name, city, job, pet, petName := names[i], draw(cities), draw(jobs), draw(pets), draw(petNames)
		lines = append(lines, fmt.Sprintf("%s is a %s and lives in %s. The %s of %s is called %s.", name,
			job, city, pet, name, petName))
		questions = append(questions,
			Turn{fmt.Sprintf("Where does %s live?", name), fmt.Sprintf("%s lives in %s.", name, city)},
			Turn{fmt.Sprintf("What is the job of %s?", name), fmt.Sprintf("%s is a %s.", name, job)},
			Turn{fmt.Sprintf("What is the %s of %s called?", pet, name),
				fmt.Sprintf("The %s of %s is called %s.", pet, name, petName)},
			Turn{fmt.Sprintf("Which animal does %s have?", name), fmt.Sprintf("%s has a %s.", name, pet)})
	}
	return strings.Join(lines, " "), questions
}
