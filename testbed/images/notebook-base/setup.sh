/bin/busybox --install -s

# The version of Debian's Python is part of the path.
packages=/usr/local/lib/python3.11/dist-packages
mkdir -p "$packages"
# All packages are pinned, so pip resolves nothing.
python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
    --require-hashes --requirement /run/image/requirements.txt --target "$packages"
chmod -R a+rX "$packages"

# pip, and the modules that Debian installs for it.
rm -rf /usr/lib/python3/dist-packages /usr/share/python-wheels /usr/bin/pip* /usr/bin/wheel

# A kernel specification where Jupyter searches it.
mkdir -p /usr/local/share/jupyter/kernels/python3
cat > /usr/local/share/jupyter/kernels/python3/kernel.json <<'END'
{"argv": ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "Python 3", "language": "python"}
END

# The packages work together.
cd /tmp
HOME=/tmp python3 -c 'import ipykernel, numpy, PIL'
