// Package storeurl opens the stores that the commands' --store names.
package storeurl

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	_ "gocloud.dev/blob/fileblob" // file://

	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/blob"
	"github.com/kvactor/kvactor/offloader/stores/valkey"
)

// Open opens the store that a URL names.
func Open(ctx context.Context, text string) (stores.Store, error) {
	// First, as its URL may have a password, which the errors of package url would show.
	if strings.HasPrefix(text, "valkey") || strings.HasPrefix(text, "redis") {
		return valkey.Open(text)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", stores.ErrURL, err)
	case u.Scheme != "file":
		return nil, fmt.Errorf("%w: %q begins with neither file: nor valkey: as its scheme",
			stores.ErrURL, text)
	}
	return blob.Open(ctx, text, blob.Options{})
}
