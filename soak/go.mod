module github.com/oxygenhub/leader/soak

go 1.26.0

replace github.com/oxygenhub/leader => ../
