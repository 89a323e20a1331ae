#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# reuse_objects.sh COMPILER...: stands before the compiler in a copy of the tree. Takes an object out of the build WALK_BUILD
# where nothing that it was made of differs: it is not named in WALK_CHANGED, and no source path is compiled into it.
set -euo pipefail
object=
depfile=
source=${!#}
for ((i = 1; i <= $#; ++i)); do
  next=$((i + 1))
  case "${!i}" in
    -c) source=${!next} ;;  # of nvcc not the last one
    -o) object=${!next} ;;
    -MF) depfile=${!next} ;;
    -D*"$WALK_TREE"*) object= && exec "$@" ;;
  esac
done
made=$WALK_BUILD/$object
# Sources that are compiled as one stand in the same file of includes, if they are the same.
if [[ $source == */Unity/unity_*.cxx ]]; then
  twin=$WALK_BUILD/${source#"$WALK_TREE/build/release/"}
  [ -f "$twin" ] && cmp -s <(sed "s|$WALK_TREE/||" "$source") <(sed "s|$WALK_SOURCE/||" "$twin") || made=
fi
# What CMake writes, such as the source of precompiled headers, is newer in every copy.
if [ -f "$made" ] && { [ "$made" -nt "$source" ] || [[ $source == "$WALK_TREE"/build/* ]]; } &&
  [[ $'\n'$(<"$WALK_CHANGED")$'\n' != *$'\n'"$object"$'\n'* ]]; then
  cp "$made" "$object"
  if [ -n "$depfile" ]; then
    list=$WALK_USED/${object//\//%} used=
    [ ! -f "$list" ] || used=$(<"$list")
    echo "$object: $source" $used >"$depfile"
  fi
  exit 0
fi
echo "$object" >>"$WALK_COMPILED"
exec "$@"
