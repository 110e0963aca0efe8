package sources

import (
	"log/slog"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// maxStoredWarnings limits the warnings of stored resources that are logged at
// startup.
const maxStoredWarnings = 100

// storedWarnings logs the warnings of the resources that the store has at startup. A
// rule that an older lbd did not have does not reject them: nobody would learn of
// it otherwise.
type storedWarnings struct {
	logger *slog.Logger
	found  int // guarded by the resolving of Sources
}

func (w *storedWarnings) take(key resource.Key, warnings []decode.Problem) {
	for _, p := range warnings {
		if w.found++; w.found <= maxStoredWarnings {
			w.logger.Warn("stored resource", "resource", key, "warning", p)
		}
	}
}

// end logs how many warnings were not logged.
func (w *storedWarnings) end() {
	if more := w.found - maxStoredWarnings; more > 0 {
		w.logger.Warn("stored resources have more warnings: PUT what GET /v1/snapshot returns with dry_run=true to list them", "more", more)
	}
}
