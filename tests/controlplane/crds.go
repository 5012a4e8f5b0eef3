// Package controlplane names the modules whose CRDs the tests install, so that go.mod keeps them.
package controlplane

import (
	_ "istio.io/api/networking/v1beta1" // kubernetes/customresourcedefinitions.gen.yaml
)
