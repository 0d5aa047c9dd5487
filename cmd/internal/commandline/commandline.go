// Package commandline has what the commands of this module say alike: errors of flags and the
// version.
package commandline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Prepare gives a command --version, and errors of flags that name the flag and no type of Go.
func Prepare(c *cobra.Command) {
	c.Version = Version()
	c.SetVersionTemplate("{{.Version}}\n")
	c.SetFlagErrorFunc(explain)
}

// explain names the flag, its value and what is wrong, each once.
func explain(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag, cause := invalid.GetFlag(), invalid.Unwrap()
	var number *strconv.NumError
	switch {
	case errors.As(cause, &number) && errors.Is(number.Err, strconv.ErrRange):
		cause = errors.New("it is out of range")
	case errors.As(cause, &number) && flag.Value.Type() == "bool":
		cause = errors.New("it is neither true nor false")
	case errors.As(cause, &number):
		cause = errors.New("it is not a number")
	case flag.Value.Type() == "duration":
		cause = errors.New("it is not a time such as 20s")
	}
	return fmt.Errorf("--%s %q: %w", flag.Name, invalid.GetValue(), cause)
}

// Version is that of the module, which has the commit if the build knows it.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "kvactor, unknown version"
	}
	return "kvactor " + info.Main.Version
}

// Main runs a command with the arguments of the process, which exits with the status that run
// returns. A signal ends the context, and a second one the process at once.
func Main(run func(ctx context.Context, args []string) (status int)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	status := run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}
