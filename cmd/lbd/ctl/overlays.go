package ctl

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// maxOverlayID is the maximum length of the ID of an overlay, in bytes.
const maxOverlayID = 64

// The kinds of overlays that commands name.
const (
	drainKind   = "drain"
	disableKind = "disable"
	weightKind  = "weight"
)

type overlaysCommand struct {
	List   overlaysList   `cmd:"" default:"withargs" help:"List overlays. This is the default: lbd ctl overlays CLUSTER is enough, unless the name is that of a command."`
	Put    overlaysPut    `cmd:"" help:"Put an overlay of any kind on a cluster, after a preview and a confirmation."`
	Delete overlaysDelete `cmd:"" help:"Delete an overlay, after a preview and a confirmation."`
}

// newOverlay is a NewOverlay of the contract.
type newOverlay struct {
	Kind        string    `json:"kind"`
	Endpoint    string    `json:"endpoint,omitempty"`
	Locality    *locality `json:"locality,omitempty"`
	Factor      *float64  `json:"factor,omitempty"`
	Priority    *int      `json:"priority,omitempty"`
	Category    string    `json:"category,omitempty"`
	Percent     *float64  `json:"percent,omitempty"`
	MaxRequests *int64    `json:"max_requests,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Expires     string    `json:"expires,omitempty"`
}

// overlayState has what tables show of an Overlay of the contract.
type overlayState struct {
	Cluster      string     `json:"cluster"`
	ID           string     `json:"id"`
	Kind         string     `json:"kind"`
	Endpoint     string     `json:"endpoint"`
	Locality     *locality  `json:"locality"`
	Says         string     `json:"says"`
	Reason       string     `json:"reason"`
	Author       string     `json:"author"`
	Created      time.Time  `json:"created"`
	Expires      *time.Time `json:"expires"`
	SupersededBy string     `json:"superseded_by"`
	InFlight     *int64     `json:"in_flight"`
}

type overlaysList struct {
	Cluster string `arg:"" optional:"" help:"Name of the cluster (default all)."`
}

// Run prints a table of overlays.
func (l *overlaysList) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	path := "/v1/overlays"
	if l.Cluster != "" {
		path = clusterPath(l.Cluster, "overlays")
	}
	return o.with(app, func(s *session) error {
		list, answer, err := s.client.overlays(ctx, path)
		if err != nil {
			return err
		}
		t := newTable("CLUSTER", "ID", "WHAT", "IN FLIGHT", "AUTHOR", "AGE", "EXPIRES", "REASON")
		for _, one := range list {
			name := one.ID
			if l.Cluster == "" {
				name = one.Cluster + "/" + one.ID
			}
			t.addNamed(name, one.Cluster, one.ID, one.what(), one.inFlight(), one.Author, age(one.Created, answer.header), one.expires(), one.Reason)
		}
		return s.printTables(answer.body, t)
	})
}

// overlays reads a list of overlays.
func (c *client) overlays(ctx context.Context, path string) ([]overlayState, response, error) {
	var list struct {
		Overlays []overlayState `json:"overlays"`
	}
	answer, err := c.get(ctx, path, nil, &list)
	return list.Overlays, answer, err
}

// what describes what the overlay does.
func (o overlayState) what() string {
	if o.SupersededBy != "" {
		return o.Says + " (superseded by " + o.SupersededBy + ")"
	}
	return o.Says
}

// inFlight is empty for the kinds that drain nothing.
func (o overlayState) inFlight() string {
	if o.InFlight == nil {
		return ""
	}
	return strconv.FormatInt(*o.InFlight, 10)
}

func (o overlayState) expires() string {
	if o.Expires == nil {
		return "never"
	}
	return o.Expires.UTC().Format(time.RFC3339)
}

// age returns the time since created, by the clock of the daemon, which is in the header of its response.
func age(created time.Time, header http.Header) string {
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return ""
	}
	const day = 24 * time.Hour
	d := max(now.Sub(created), 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < day:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/day)
	}
}

// overlayFlags are the flags of a new overlay of any kind.
type overlayFlags struct {
	Yes        bool   `short:"y" help:"Do not ask for confirmation; required without a terminal (default false)"`
	Reason     string `help:"Why, for others: at most 500 bytes (default none)" placeholder:"TEXT"`
	Expires    string `help:"When the overlay ends by itself: a time from now, such as 2h; a time in RFC 3339; or never (default never for drain and disable, 1h for the other kinds)" placeholder:"TIME"`
	AllowEmpty bool   `help:"Allow a cluster without usable endpoints (default false)"`

	AllowMissing bool `help:"Allow an endpoint or a locality that the cluster does not have yet (default false)"`
}

// change returns the change that puts an overlay.
func (f *overlayFlags) change(cluster, id string, n newOverlay) (change, error) {
	n.Reason, n.Expires = f.Reason, f.Expires
	body, err := json.Marshal(n)
	if err != nil {
		return change{}, usage("the overlay: %w", err)
	}
	c := ofOverlay(http.MethodPut, cluster, id)
	c.query, c.body, c.canCreate = parameters("allow_empty", ifSet(f.AllowEmpty), "must_name", ifSet(!f.AllowMissing)), body, true
	c.header.Set("Content-Type", "application/json")
	c.what = fmt.Sprintf("Put the overlay %s on %s", id, cluster)
	return c, nil
}

// ofOverlay returns a change of an overlay.
func ofOverlay(method, cluster, id string) change {
	c := newChange(method, clusterPath(cluster, "overlays/"+segment(id)))
	c.untagged = true
	return c
}

type overlaysPut struct {
	Cluster     string   `arg:"" help:"Name of the cluster."`
	ID          string   `arg:"" name:"id" help:"ID of the overlay: 1 to 64 letters, digits, dots, hyphens and underscores."`
	Kind        string   `arg:"" enum:"drain,disable,weight,force_priority,forbid_priority,drop,max_requests,hold_ejections" help:"Kind: ${enum}."`
	Endpoint    string   `help:"Address or hostname of the endpoint of drain, disable and weight (default none)" placeholder:"ENDPOINT"`
	Locality    string   `help:"Locality instead of an endpoint; * or an empty part matches any (default none)" placeholder:"REGION/ZONE/SUB_ZONE"`
	Factor      *float64 `help:"Factor of weight: 0, or 0.001 to 10 (default none)" placeholder:"FACTOR"`
	Priority    *int     `help:"Priority of force_priority and forbid_priority, 0 to 128 (default none)" placeholder:"N"`
	Category    string   `help:"Drop category of drop (default all together)" placeholder:"NAME"`
	Percent     *float64 `help:"Percentage of the requests that drop drops, 0 to 100 (default none)" placeholder:"PERCENT"`
	MaxRequests *int64   `help:"Limit of the circuit breaker, of max_requests (default none)" placeholder:"N"`
	overlayFlags
}

// Run puts an overlay.
func (p *overlaysPut) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	where, err := readLocality(p.Locality)
	if err != nil {
		return err
	}
	todo, err := p.change(p.Cluster, p.ID, newOverlay{
		Kind: p.Kind, Endpoint: p.Endpoint, Locality: where, Factor: p.Factor, Priority: p.Priority, Category: p.Category,
		Percent: p.Percent, MaxRequests: p.MaxRequests,
	})
	if err != nil {
		return err
	}
	return o.apply(ctx, app, changeFlags{Yes: p.Yes}, todo)
}

type overlaysDelete struct {
	Cluster string `arg:"" help:"Name of the cluster."`
	ID      string `arg:"" name:"id" help:"ID of the overlay."`
	changeFlags
}

// Run deletes an overlay.
func (d *overlaysDelete) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	todo := ofOverlay(http.MethodDelete, d.Cluster, d.ID)
	todo.what = fmt.Sprintf("Delete the overlay %s of %s", d.ID, d.Cluster)
	return o.apply(ctx, app, d.changeFlags, todo)
}

// subject is what a drain or a weight is about: an endpoint or a locality.
type subject struct {
	Cluster  string `arg:"" help:"Name of the cluster."`
	Endpoint string `arg:"" optional:"" help:"Address of the endpoint, such as 10.0.0.7:8080, or hostname of endpoints. Without it, --locality is required."`
	Locality string `help:"Locality instead of an endpoint; * or an empty part matches any (default none)" placeholder:"REGION/ZONE/SUB_ZONE"`
}

// locality returns the locality; nil if the subject is an endpoint.
func (s *subject) locality() (*locality, error) {
	if (s.Endpoint == "") == (s.Locality == "") {
		return nil, usage("set either ENDPOINT or --locality, not both")
	}
	return readLocality(s.Locality)
}

// readLocality reads REGION/ZONE/SUB_ZONE. It returns nil for an empty text.
func readLocality(text string) (*locality, error) {
	if text == "" {
		return nil, nil
	}
	const anyPart = "*"
	parts := append(strings.Split(text, "/"), "", "")
	if len(parts) > 5 {
		return nil, usage("--locality %q: must have the form REGION/ZONE/SUB_ZONE", text)
	}
	for i, part := range parts {
		if part == anyPart {
			parts[i] = ""
		}
	}
	l := &locality{parts[0], parts[1], parts[2]}
	if *l == (locality{}) {
		return nil, usage("--locality %q: must have a region, a zone or a sub-zone", text)
	}
	return l, nil
}

// says describes the subject.
func (s *subject) says(where *locality) string {
	if where != nil {
		return "locality " + where.pattern()
	}
	return "endpoint " + s.Endpoint
}

// pattern returns the locality with * for each part that matches any, as the daemon describes it.
func (l locality) pattern() string {
	return cmp.Or(l.Region, "*") + "/" + cmp.Or(l.Zone, "*") + "/" + cmp.Or(l.SubZone, "*")
}

// overlayID returns the ID of the overlay of a kind of a subject, so that the same command again is
// about the same overlay. Different subjects have different IDs: if the ID cannot have the whole name,
// it has a hash of it.
func (s *subject) overlayID(kind string, where *locality) string {
	prefix, name, separator := kind+"-", s.Endpoint, ':'
	if where != nil {
		prefix, name, separator = kind+"-locality-", where.String(), '/'
	}
	exact := true
	id := prefix + strings.Map(func(r rune) rune {
		switch {
		case r == separator:
			return '_'
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		exact = false
		return '-'
	}, name)
	if exact && len(id) <= maxOverlayID {
		return id
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:8])
	return id[:min(len(id), maxOverlayID-len(suffix))] + suffix
}
