#!/bin/sh
case "$1" in
gcc)
	echo 8.1.0
	;;
rustc)
	echo 1.85.0
	;;
bindgen)
	echo 0.71.1
	;;
esac
