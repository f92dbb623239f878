/bin/busybox --install -s

# The version of Debian's Python is part of the path; a new one must also resolve requirements.txt again.
packages=/usr/local/lib/python3.11/dist-packages
mkdir -p "$packages"
# All packages are pinned, so pip resolves nothing. A package that only has sources would need a compiler.
python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --no-deps --only-binary :all: \
    --require-hashes --requirement /run/image/requirements.txt --target "$packages"
cp -R /run/image/notebook_runner "$packages/"
chmod -R a+rX "$packages"

# pip, and the modules that Debian installs for it.
rm -rf /usr/lib/python3/dist-packages /usr/share/python-wheels /usr/bin/pip* /usr/bin/wheel "$packages/bin"
rm -rf /usr/lib/python3.11/ensurepip /usr/lib/python3.11/lib2to3 /usr/lib/python3.11/distutils /usr/share/python3

# The root filesystem of the runner is read-only, so modules are compiled here. Files in an image have the time 0, so the
# hash of the source identifies it.
python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3.11 "$packages"

# The runner starts, and rejects missing settings.
python3 -I -m notebook_runner 2>&1 | grep -q 'error: settings: not JSON'
