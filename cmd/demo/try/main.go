// Command try runs a script.
package main

import (
	"fmt"
	"os"

	"github.com/kvactor/kvactor/cmd/demo/internal/live"
	"github.com/kvactor/kvactor/cmd/demo/internal/script"
)

func main() {
	if err := script.Run(os.Stdin, os.Stdout, live.Open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
