package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/sources"
)

// permission is what a route requires of its caller.
type permission struct {
	// set is false for the zero value, which no route has.
	set bool
	// role is required; 0 for routes that anybody may call, who may have wrong
	// credentials, too.
	role access.Roles
	// wider is a role that permits the request too, without role; 0 for none. It permits
	// more: what is not the caller's own.
	wider access.Roles
	scope scope
	work  work
}

// scope says which clusters a route shows or changes: it returns an error if the caller may not make a
// request. Routes without a scope are about all clusters: callers that may not see all are rejected.
type scope func(w *recorder, r *http.Request) error

// named is that of the path parameter name.
func named(w *recorder, r *http.Request) error { return mayUseNamed(w, r, mayUseCluster) }

// namedTarget is that of the path parameter name, which names a target.
func namedTarget(w *recorder, r *http.Request) error { return mayUseNamed(w, r, mayUseTarget) }

func mayUseNamed(w *recorder, r *http.Request, mayUse func(w *recorder, name string) error) error {
	name, err := pathName(r, "name")
	if err != nil {
		return err
	}
	return mayUse(w, name)
}

// filtered is what the handler chooses with [mayUseCluster], [mayUseTarget] and [scopeOf].
func filtered(*recorder, *http.Request) error { return nil }

// as returns a router for routes that require a role.
func (r router) as(role access.Roles) *router {
	r.permission = permission{set: true, role: role}
	return &r
}

// orAs returns a router for routes that a role permits too, without the one of [router.as].
func (r router) orAs(wider access.Roles) *router {
	r.permission.wider = wider
	return &r
}

// of returns a router for routes of a scope.
func (r router) of(s scope) *router {
	r.permission.scope = s
	return &r
}

// authorize identifies the caller of a request, notes it in w, and returns an
// error if the caller may not make the request.
func (e *route) authorize(w *recorder, r *http.Request, now time.Time) error {
	caller, policy, err := e.router.callers.Identify(r, now)
	w.policy = policy
	if e.permission.role == 0 {
		if err != nil {
			caller = access.Anonymous(0)
		}
		w.caller = caller
		return nil
	}
	if e.permission.role == access.Dashboard {
		return loadsPage(policy, err)
	}
	if err != nil {
		if expired, ok := errors.AsType[*access.ExpiredError](err); ok {
			w.expired = expired.Name
		}
		return err
	}
	w.caller = caller
	if err := e.permission.require(caller, policy); err != nil {
		return err
	}
	if !caller.Restricted() {
		return nil
	}
	if e.permission.scope == nil {
		return fault.Errorf(listen.PermissionDenied, "%s may use only some clusters, and this request is about all of them", caller.Name)
	}
	return e.permission.scope(w, r)
}

// require returns an error if the caller has neither role. It names the wider one.
func (p *permission) require(c *access.Caller, policy listen.Policy) error {
	err := listen.Require(c, policy, p.role)
	if err != nil && p.wider != 0 {
		return listen.Require(c, policy, p.wider)
	}
	return err
}

// granted returns the role with which the caller makes the request, or the one that it lacks.
func (p *permission) granted(w *recorder) access.Roles {
	if p.wider == 0 || hasRole(w, p.role) && !hasRole(w, p.wider) {
		return p.role
	}
	return p.wider
}

// loadsPage returns an error if no caller may load pages from a listener. A
// browser loads them without credentials; what they show needs a role.
func loadsPage(p listen.Policy, err error) error {
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == listen.MisdirectedRequest {
		return err
	}
	return listen.Require(access.Anonymous(access.Dashboard), p, access.Dashboard)
}

// whileWaiting returns the error of a handler: another one if its wait ended because the identity of
// the caller did. That of a pick is canceled, or has its timeout when the identity expires.
func whileWaiting(w *recorder, r *http.Request, err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code != fault.CallerGone && e.Code != fault.PickTimeout && e.Code != fault.IndexNotReached ||
		r.Context().Err() != nil || w.caller == nil || !w.caller.Ended(time.Now()) {
		return err
	}
	return fault.Errorf(listen.Unauthenticated, "%s is no longer valid: the identity was removed or changed, or has expired, while the request waited", w.caller.Name)
}

// hasRole reports whether the caller of the request that w answers has a role.
func hasRole(w *recorder, role access.Roles) bool {
	return w.caller != nil && listen.Require(w.caller, w.policy, role) == nil
}

// scopeOf returns what the caller of the request that w answers may see.
func scopeOf(w *recorder) *ledger.Scope {
	if c := w.caller; c.Restricted() {
		return ledger.NewScope(c.MaySee)
	}
	return nil
}

// mayUseCluster returns an error if the caller of the request that w answers may not see a
// cluster. It does not depend on whether the cluster exists. An empty name is no cluster.
func mayUseCluster(w *recorder, name string) error {
	if c := w.caller; name != "" && !c.MaySee(name) {
		return fault.Errorf(listen.PermissionDenied, "%s may not use %q", c.Name, fault.Clip(name))
	}
	return nil
}

// mayName returns the check of [sources.ChangeOptions] for the caller of the request that w answers: what a
// resource names gets its picks, and shows its endpoints, so the caller must be permitted to use it, too. The
// error does not depend on whether it exists.
func mayName(w *recorder) func(by, named sources.Key) error {
	in := scopeOf(w)
	if in.All() {
		return nil
	}
	return func(by, named sources.Key) error {
		if in.Resource(named) {
			return nil
		}
		return fault.Errorf(listen.PermissionDenied, "%s may not use %q, which %s names", w.caller.Name, fault.Clip(named.Name), by)
	}
}

// mayUseTarget is mayUseCluster for a target, however its name is spelled. Patterns match the
// name without xds:///. An empty name is no target.
func mayUseTarget(w *recorder, name string) error {
	if c := w.caller; name != "" && !c.MaySee(ledger.TargetKey(name)) {
		return fault.Errorf(listen.PermissionDenied, "%s may not use %q", c.Name, fault.Clip(name))
	}
	return nil
}
