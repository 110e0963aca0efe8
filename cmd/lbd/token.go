package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/lbd-dev/lbd/service/access"
)

type tokenCommand struct {
	New newTokenCommand `cmd:"" help:"Print a new token, and its entry for the identity file. The token is not stored."`
}

type newTokenCommand struct {
	Name     string         `help:"Name of the caller, unique in the identity file" required:"" placeholder:"NAME"`
	Roles    string         `help:"Roles of the caller: names joined by +, of pick, read, push, admin, metrics, dashboard (default \"${default}\")" default:"pick" placeholder:"ROLES"`
	Clusters []string       `help:"Pattern of the names of clusters and targets that the caller may use, in which * stands for any characters; repeatable (default all)" placeholder:"PATTERN"`
	Expires  *time.Duration `help:"Time until the token expires, such as 2160h (default never)" placeholder:"DURATION"`
}

// Run prints the token and the entry.
func (c *newTokenCommand) Run(app *kong.Kong) error {
	roles, err := access.ParseRoles(c.Roles)
	if err != nil {
		return fmt.Errorf("--roles: %w", err)
	}
	if c.Expires != nil && *c.Expires <= 0 {
		return fmt.Errorf("--expires must be positive, not %v", *c.Expires)
	}
	token, hash := access.NewToken()
	entry := c.entry(roles, hash, time.Now())
	if _, err := access.Parse([]byte("tokens:\n" + entry)); err != nil {
		return fmt.Errorf("the entry would be invalid: %w", err)
	}
	_, err = io.WriteString(app.Stdout, "# The token, which is shown only once:\n"+token+
		"\n\n# Its entry for the list tokens of the identity file (--tokens):\n"+entry)
	return err
}

func (c *newTokenCommand) entry(roles access.Roles, hash string, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- name: %s\n  sha256: %s\n  roles: [%s]\n", strconv.Quote(c.Name), strconv.Quote(hash), strings.Join(roles.Names(), ", "))
	if len(c.Clusters) > 0 {
		quoted := make([]string, len(c.Clusters))
		for i, p := range c.Clusters {
			quoted[i] = strconv.Quote(p)
		}
		fmt.Fprintf(&b, "  clusters: [%s]\n", strings.Join(quoted, ", "))
	}
	if c.Expires != nil {
		fmt.Fprintf(&b, "  expires: %s\n", now.Add(*c.Expires).UTC().Format(time.RFC3339))
	}
	return b.String()
}
